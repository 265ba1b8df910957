package report

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// browser finds a Chromium. KPLAB_TEST_BROWSER (make test-browser sets it) makes its absence a failure.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	require.Empty(t, os.Getenv("KPLAB_TEST_BROWSER"), "no Chromium on PATH: make test-browser installs one")
	t.Skip("no Chromium on PATH: make test-browser installs one and runs this")
	return ""
}

// complaints is what a page has to complain about: console errors, exceptions, and anything that it asks a network for.
type complaints struct {
	mu   sync.Mutex
	list []string
}

func (c *complaints) add(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, fmt.Sprintf(format, args...))
}

func (c *complaints) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.list...)
}

// tab opens a browser and listens to its complaints.
func tab(t *testing.T) (context.Context, *complaints) {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browser(t)), chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1280, 900))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses to sandbox root
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	c := &complaints{}
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithListener(func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			c.add("exception: %s", (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
				for _, a := range e.Args {
					c.add("console: %s", a.Value)
				}
			}
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
				c.add("log: %s %s", e.Entry.Text, e.Entry.URL)
			}
		case *network.EventRequestWillBeSent:
			if u := e.Request.URL; !strings.HasPrefix(u, "file:") && !strings.HasPrefix(u, "data:") {
				c.add("the page asks for %s", u)
			}
		}
	}))
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx, call(network.Enable, network.EnableParams{}), call(log.Enable, cdp.Empty{})))
	return ctx, c
}

// call is a command of the protocol as an action.
func call[P, R any](command cdp.Command[P, R], parameters P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, parameters)
		return err
	})
}

// evaluate runs a script in the page and returns its value.
func evaluate[T any](t *testing.T, ctx context.Context, script string) T {
	t.Helper()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	require.NoError(t, err, script)
	return value
}

const visible = `Array.from(document.querySelectorAll(%q)).filter(e => e.checkVisibility() && e.getBoundingClientRect().right > 0).length`

// TestBrowser opens the page as a reader does.
func TestBrowser(t *testing.T) {
	ctx, complaints := tab(t)
	dir := written(t, options(t), realRun(t), every(t), measuredSource(t, "host"))
	address := "file://" + filepath.Join(dir, pageFile)
	run := func(actions ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		require.NoError(t, chromedp.Do(ctx, actions...))
	}
	shown := func(selector string) int { return evaluate[int](t, ctx, fmt.Sprintf(visible, selector)) }
	run(chromedp.Navigate(address), chromedp.WaitVisible(chromedp.CSS("#filters")))

	const cells = ".matrix a[data-cell]"
	assert.Equal(t, 13, shown(cells))
	assert.Equal(t, "13 cells", evaluate[string](t, ctx, `document.querySelector('#filters output').textContent`))
	choose := func(name, value string) {
		run(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(() => { const s = document.querySelector('#filters [name=%s]'); s.value = %q; s.dispatchEvent(new Event('input', {bubbles: true})); })()`, name, value)))
	}
	choose("mode", "ipvs")
	assert.Equal(t, 4, shown(cells), "one mode")
	assert.Equal(t, 1+2, shown(".matrix thead th"), "the other modes' columns are gone; this one was run on two kernels")
	choose("verdict", "skip")
	choose("mode", "")
	assert.Equal(t, 4, shown(cells), "one verdict")
	assert.Equal(t, 4, shown("#cells .cell"), "the list of cells follows")
	choose("verdict", "")
	choose("family", "conntrack")
	assert.Equal(t, 3, shown(cells), "one family")
	run(chromedp.Click(chromedp.CSS("#filters button[type=reset]")))
	run(chromedp.Poll[chromedp.Void](`document.querySelector('#filters output').textContent === '13 cells'`))
	run(chromedp.SendKeys(chromedp.CSS("#filters [name=name]"), "localhost"))
	assert.Equal(t, 3, shown(cells), "a part of a name")
	choose("name", "no scenario has this name")
	assert.Zero(t, shown(cells))
	run(chromedp.Click(chromedp.CSS("#filters button[type=reset]")))
	run(chromedp.Poll[chromedp.Void](`document.querySelector('#filters output').textContent === '13 cells'`))

	// A cell opens, by keyboard, and gives the focus back.
	run(chromedp.Focus(chromedp.CSS(cells+".fail")), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(chromedp.CSS("#viewer[open]")))
	text := evaluate[string](t, ctx, `document.getElementById('viewer').innerText`)
	assert.Contains(t, text, "a, iptables / host 6.18.5 / 1.37.2, run 20261201T000000.000Z: fail")
	assert.Contains(t, text, "kplab repro a --mode iptables")
	assert.Contains(t, text, "<script>alert(1)</script>", "what was observed is text")
	assert.Contains(t, text, "Evidence: 1 file")
	assert.Zero(t, evaluate[float64](t, ctx, `document.getElementById('viewer').scrollTop`), "it begins at its beginning")
	run(chromedp.KeyEvent(kb.Escape), chromedp.WaitNotVisible(chromedp.CSS("#viewer")))
	assert.Equal(t, "fail", evaluate[string](t, ctx, `document.activeElement.dataset.verdict`))

	// Every plot is drawn, and has its words.
	plots := evaluate[int](t, ctx, `document.querySelectorAll('figure.plot').length`)
	assert.Equal(t, 13, plots)
	evaluate[chromedp.Void](t, ctx, `document.querySelectorAll('details').forEach(d => d.open = true)`)
	drawn := evaluate[int](t, ctx, `Array.from(document.querySelectorAll('figure.plot svg')).filter(s => {
		const box = s.getBoundingClientRect();
		return box.width > 200 && box.height > 80 && s.querySelectorAll('path').length > 5 && s.querySelector('title').textContent && s.querySelector('desc').textContent;
	}).length`)
	assert.Equal(t, plots, drawn, "a plot is missing")

	// Nothing is wider than the page, on a desk and on a phone, closed and open.
	for _, width := range []int64{1280, 768, 375} {
		run(chromedp.EmulateViewport(width, 800))
		wide := evaluate[[]string](t, ctx, `(() => {
			const inner = document.documentElement.clientWidth;
			if (document.documentElement.scrollWidth <= inner) return [];
			return Array.from(document.querySelectorAll('body *')).filter(e => e.checkVisibility() && e.getBoundingClientRect().right > inner + 1 && !e.closest('.scroll')).slice(0, 5)
				.map(e => e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 60)).concat(['overflow']);
		})()`)
		assert.Empty(t, wide, "at %d pixels", width)
	}

	// Text has contrast in both schemes.
	for _, scheme := range []string{"light", "dark"} {
		run(call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
		assert.Empty(t, evaluate[[]string](t, ctx, contrast), scheme)
	}
	assert.Empty(t, complaints.take())
}

// contrast finds texts whose contrast with what is behind them is below 4.5 to 1 (WCAG 2.2, 1.4.3).
const contrast = `(() => {
	const channel = v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
	const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
	const color = s => (s.match(/[\d.]+/g) || []).map(Number);
	const behind = e => { for (; e; e = e.parentElement) { const c = color(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > 0) return c; } return [255, 255, 255]; };
	const bad = new Set();
	for (const e of document.querySelectorAll('body *')) {
		if (!e.checkVisibility() || !Array.from(e.childNodes).some(n => n.nodeType === 3 && n.textContent.trim())) continue;
		const style = getComputedStyle(e);
		const a = luminance(color(e.closest('svg') ? style.fill : style.color)), b = luminance(behind(e));
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) bad.add(e.tagName + '.' + (e.className.baseVal ?? e.className) + ' ' + ratio.toFixed(2));
	}
	return Array.from(bad);
})()`

// TestBrowserWithoutScript: without JavaScript everything is there, and the matrix leads to its cells.
func TestBrowserWithoutScript(t *testing.T) {
	ctx, complaints := tab(t)
	dir := written(t, options(t), every(t))
	address := "file://" + filepath.Join(dir, pageFile)
	require.NoError(t, chromedp.Do(ctx, call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}), chromedp.Navigate(address)))
	// The page's own scripts are off; those of the test are not.
	assert.Zero(t, evaluate[int](t, ctx, fmt.Sprintf(visible, "#filters")), "a form that nothing serves is not shown")
	assert.Equal(t, 4, evaluate[int](t, ctx, fmt.Sprintf(visible, ".matrix a[data-cell]")))
	assert.Equal(t, 4, evaluate[int](t, ctx, fmt.Sprintf(visible, "#cells .cell > summary")))
	require.NoError(t, chromedp.Do(ctx, chromedp.Click(chromedp.CSS(".matrix a.pass")), chromedp.WaitVisible(chromedp.CSS("#cells .cell[data-verdict=pass] .body"))))
	assert.Empty(t, complaints.take())
}

// TestBrowserPrints makes a PDF of the page.
func TestBrowserPrints(t *testing.T) {
	ctx, _ := tab(t)
	dir := written(t, options(t), every(t), measuredSource(t, "host"))
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate("file://"+filepath.Join(dir, pageFile))))
	pdf, err := chromedp.Run(ctx, chromedp.PrintToPDF())
	require.NoError(t, err)
	assert.Greater(t, len(pdf), 20_000)
}
