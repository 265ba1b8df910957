package apiserver

import (
	"bufio"
	"errors"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// watcher sends one watch to one client.
type watcher struct {
	store     *store
	selector  selector
	format    *format
	bookmarks bool
	out       *bufio.Writer
	flush     func() error
	buffer    []byte
	version   uint64 // everything up to here is sent
	sent      int64  // bytes of events
}

// watch answers a watch request until the client leaves, timeoutSeconds have passed or the server closes.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, sel selector, f *format, o *metav1.ListOptions) {
	start, err := parseVersion(o.ResourceVersion)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", f.watchType)
	w.WriteHeader(http.StatusOK)
	c := &watcher{
		store: s.store, selector: sel, format: f, bookmarks: o.AllowWatchBookmarks, version: start,
		out:   bufio.NewWriterSize(w, 64<<10),
		flush: http.NewResponseController(w).Flush,
	}
	var timeout <-chan time.Time
	if o.TimeoutSeconds != nil && *o.TimeoutSeconds > 0 {
		t := time.NewTimer(time.Duration(*o.TimeoutSeconds) * time.Second)
		defer t.Stop()
		timeout = t.C
	}
	ticker := time.NewTicker(s.bookmarkEvery)
	defer ticker.Stop()

	// A stream that asks for initial events gets them; without resourceVersion, so does an ordinary watch.
	initial := o.SendInitialEvents != nil && *o.SendInitialEvents
	if initial || o.SendInitialEvents == nil && start == 0 {
		began := time.Now()
		n, err := c.sendInitial(initial && c.bookmarks)
		s.deliveries.add(Delivery{Path: r.URL.Path, Agent: r.UserAgent(), Began: began, Ended: time.Now(), Objects: n, Bytes: c.sent})
		if err != nil {
			s.log.Debug("watch ended", "path", r.URL.Path, "err", err)
			return
		}
		s.log.Debug("initial events sent", "path", r.URL.Path, "objects", n, "took", time.Since(began))
	} else if start == 0 {
		_, c.version = s.store.list(sel)
	}
	if err := c.follow(r, timeout, ticker.C); err != nil {
		s.log.Debug("watch ended", "path", r.URL.Path, "err", err)
	}
}

// sendInitial sends what exists as ADDED, and then, if end is set, the bookmark that says that this was all. It returns how
// many objects there were.
func (c *watcher) sendInitial(end bool) (int, error) {
	entries, version := c.store.list(c.selector)
	for _, e := range entries {
		if err := c.send(watch.Added, e); err != nil {
			return 0, err
		}
	}
	c.version = version
	if end {
		if err := c.sendBookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"}); err != nil {
			return 0, err
		}
	}
	return len(entries), errors.Join(c.out.Flush(), c.flush())
}

// follow sends changes as they happen.
func (c *watcher) follow(r *http.Request, timeout, bookmark <-chan time.Time) error {
	for {
		changes, version, changed, err := c.store.since(c.selector.resource, c.version)
		if err != nil {
			return c.sendError(err)
		}
		for _, change := range changes {
			if err := c.sendChange(change); err != nil {
				return err
			}
		}
		// A client may name a version that is yet to come.
		c.version = max(c.version, version)
		if err := errors.Join(c.out.Flush(), c.flush()); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-bookmark:
			if c.bookmarks {
				if err := c.sendBookmark(nil); err != nil {
					return err
				}
			}
		case <-timeout:
			return nil
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
}

// sendChange sends a change as the selector sees it: an object that begins to match was added, one that ceases was deleted.
func (c *watcher) sendChange(change *change) error {
	before, after := c.selector.matches(change.old), c.selector.matches(change.new)
	switch {
	case before && after:
		return c.send(watch.Modified, change.new)
	case after:
		return c.send(watch.Added, change.new)
	case before:
		return c.send(watch.Deleted, change.gone())
	}
	return nil
}

func (c *watcher) send(event watch.EventType, e *entry) error {
	data, err := e.encoded(c.format)
	if err != nil {
		return err
	}
	return c.write(event, data)
}

func (c *watcher) sendBookmark(annotations map[string]string) error {
	o, err := scheme.Scheme.New(c.selector.resource.gvk())
	if err != nil {
		return err
	}
	b := o.(object)
	b.GetObjectKind().SetGroupVersionKind(c.selector.resource.gvk())
	b.SetResourceVersion(formatVersion(c.version))
	b.SetAnnotations(annotations)
	data, err := c.format.encode(b)
	if err != nil {
		return err
	}
	return c.write(watch.Bookmark, data)
}

// sendError ends a watch with an ERROR event.
func (c *watcher) sendError(reason error) error {
	status := apierrors.NewResourceExpired(reason.Error() + ": " + formatVersion(c.version)).Status()
	data, err := c.format.encode(withKind(&status))
	if err != nil {
		return err
	}
	return errors.Join(reason, c.write(watch.Error, data), c.out.Flush(), c.flush())
}

func (c *watcher) write(event watch.EventType, data []byte) error {
	var err error
	if c.buffer, err = c.format.frame(c.buffer[:0], event, data); err != nil {
		return err
	}
	n, err := c.out.Write(c.buffer)
	c.sent += int64(n)
	return err
}

// parseVersion reads a resourceVersion; "" is 0.
func parseVersion(v string) (uint64, error) {
	if v == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest("resourceVersion: expected a whole number, got " + strconv.Quote(v))
	}
	return n, nil
}
