package kubeproxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// releaseServer has the binaries that the Kubernetes project publishes
// (https://kubernetes.io/releases/download/#binaries).
const releaseServer = "https://dl.k8s.io/release"

// releaseClient gives up on a server that cannot be reached within seconds, so that a machine without a way out of its
// network goes on to the Go module. A download itself may take as long as its context allows.
var releaseClient = &http.Client{Transport: &http.Transport{
	Proxy:                 http.ProxyFromEnvironment,
	DialContext:           (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
	TLSHandshakeTimeout:   3 * time.Second,
	ResponseHeaderTimeout: 10 * time.Second,
}}

// unreachable remembers, for this process, the release servers that could not be reached: base URL -> error.
var unreachable sync.Map

// statusError is an answer of the release server that is not 200.
type statusError struct {
	url    string
	code   int
	status string
}

func (e *statusError) Error() string { return e.url + ": " + e.status }

func (s *Source) release() string {
	if s.Release != "" {
		return strings.TrimSuffix(s.Release, "/")
	}
	return releaseServer
}

// get opens a file of the release server. The error is a *statusError, or wraps errUnavailable.
func (s *Source) get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err, ok := unreachable.Load(s.release()); ok {
		return nil, err.(error)
	}
	url := s.release() + "/" + name
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("release server: %w", err)
	}
	response, err := releaseClient.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("get %s: %w", url, context.Cause(ctx))
		}
		if request := (*neturl.Error)(nil); errors.As(err, &request) {
			err = request.Err // without the file's name: it is the server that is out of reach
		}
		err = fmt.Errorf("release server %s %w: %w", s.release(), errUnavailable, err)
		unreachable.Store(s.release(), err)
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, &statusError{url: url, code: response.StatusCode, status: response.Status}
	}
	return response.Body, nil
}

// download fetches a version into scratch from the release server. An error that wraps errUnavailable means that the
// server cannot be reached or does not have it; a binary that does not have the published SHA-256 is another error.
func (s *Source) download(ctx context.Context, version, scratch string, say progress) (origin string, err error) {
	name := fmt.Sprintf("v%s/bin/linux/%s/kube-proxy", version, s.arch())
	origin = s.release() + "/" + name
	published, err := s.read(ctx, name+".sha256")
	if err != nil {
		return "", notThere(err)
	}
	say("downloading %s", origin)
	body, err := s.get(ctx, name)
	if err != nil {
		return "", notThere(err)
	}
	defer body.Close()
	f, err := os.Create(filepath.Join(scratch, binaryFile))
	if err != nil {
		return "", err
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(f.Name()) // go build refuses to write over what it did not build
		}
	}()
	digest := sha256.New()
	if err := transfer(io.MultiWriter(f, digest), body); err != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("download %s: %w", origin, context.Cause(ctx))
		}
		return "", fmt.Errorf("download %s: %w", origin, err)
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	want, _, _ := strings.Cut(strings.TrimSpace(published), " ")
	if got := hex.EncodeToString(digest.Sum(nil)); !strings.EqualFold(got, want) {
		return "", fmt.Errorf("download %s: its SHA-256 is %s, and the server publishes %q: nothing was kept; try again, and if it stays so, distrust the server or what is between", origin, got, want)
	}
	return origin, nil
}

// transfer copies, and tells a broken connection (unavailable: another place may do) from a local failure.
func transfer(to io.Writer, from io.Reader) error {
	r := &readErrors{from: from}
	_, err := io.Copy(to, r)
	if err != nil && r.err != nil {
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	return err
}

type readErrors struct {
	from io.Reader
	err  error
}

func (r *readErrors) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// notThere marks an answer of the server as errUnavailable.
func notThere(err error) error {
	if status := (*statusError)(nil); errors.As(err, &status) {
		return fmt.Errorf("release server: %w: %w", errUnavailable, err)
	}
	return err
}
