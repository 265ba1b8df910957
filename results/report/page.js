(() => {
  'use strict';
  const all = (selector, from = document) => Array.from(from.querySelectorAll(selector));

  // Filters: the form is there only where a script can serve it; without one the page shows everything.
  const form = document.getElementById('filters');
  const cells = all('[data-cell]');
  const facets = ['family', 'mode', 'kernel', 'proxy', 'substrate', 'verdict'];
  const matches = (cell, want) => {
    const d = cell.dataset;
    for (const name of facets) {
      if (want[name] && !d[name].split('|').includes(want[name])) return false;
    }
    return !want.name || (d.scenario + ' ' + d.claims).toLowerCase().includes(want.name);
  };
  const filter = () => {
    const want = Object.fromEntries(new FormData(form));
    want.name = want.name.trim().toLowerCase();
    let shown = 0, links = 0;
    const columns = new Set();
    for (const cell of cells) {
      const hide = !matches(cell, want);
      cell.hidden = hide;
      if (cell.tagName !== 'A') continue;
      links++;
      if (hide) continue;
      shown++;
      columns.add(cell.closest('td').dataset.column);
    }
    const active = Object.values(want).some(Boolean);
    for (const e of all('.matrix [data-column]')) e.hidden = active && shown > 0 && !columns.has(e.dataset.column);
    for (const row of all('.matrix tbody tr')) row.hidden = !row.querySelector('[data-cell]:not([hidden])');
    for (const s of all('.scenario')) s.hidden = !s.querySelector('[data-cell]:not([hidden])');
    form.querySelector('output').textContent = active ? `${shown} of ${links} cells` : `${links} cells`;
  };
  if (form) {
    form.hidden = false;
    form.addEventListener('input', filter);
    form.addEventListener('submit', e => e.preventDefault());
    form.addEventListener('reset', () => setTimeout(filter)); // the fields change after the event
    filter();
  }

  // A cell of the matrix opens over the page, so that its place in the matrix is not lost. Without a script it is a link.
  const viewer = document.getElementById('viewer');
  const reveal = id => {
    const body = document.getElementById(id);
    if (!body) return;
    for (let e = body.parentElement; e; e = e.parentElement) if (e.tagName === 'DETAILS') e.open = true;
  };
  let from = null;
  const open = link => {
    const body = document.getElementById(link.dataset.cell);
    const details = body.closest('details');
    from = link;
    document.getElementById('viewer-title').textContent = link.dataset.scenario + ', ' + details.querySelector('.setting').textContent + ': ' + link.dataset.verdict;
    const copy = body.cloneNode(true);
    copy.removeAttribute('id');
    viewer.querySelector('.content').replaceChildren(copy);
    viewer.showModal(); // the content takes the focus: a button would take the rest of the key press that opened it
    viewer.scrollTop = 0;
  };
  document.addEventListener('click', e => {
    if (e.ctrlKey || e.metaKey || e.shiftKey || e.button !== 0) return;
    const link = e.target.closest('a');
    if (!link) return;
    if (link.matches('.matrix a[data-cell]')) {
      e.preventDefault();
      open(link);
      return;
    }
    const hash = link.getAttribute('href') || '';
    if (!hash.startsWith('#')) return;
    if (viewer.open) viewer.close();
    reveal(hash.slice(1));
  });
  viewer.addEventListener('click', e => { if (e.target === viewer || e.target.closest('.close')) viewer.close(); });
  viewer.addEventListener('close', () => { if (from) from.focus(); from = null; });
  window.addEventListener('hashchange', () => reveal(decodeURIComponent(location.hash.slice(1))));
  if (location.hash) {
    const id = decodeURIComponent(location.hash.slice(1));
    reveal(id);
    document.getElementById(id)?.scrollIntoView();
  }
})();
