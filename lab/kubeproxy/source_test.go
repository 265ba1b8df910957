package kubeproxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// releases is a release server. Its kube-proxies are shell scripts that answer --version.
type releases struct {
	*httptest.Server
	requests atomic.Int64 // for binaries
	stall    chan struct{}
}

func script(version string) []byte {
	return fmt.Appendf(nil, "#!/bin/sh\necho Kubernetes v%s\n", version)
}

// serveReleases serves 1.36.3 (good), 1.36.4 (with the wrong digest), 1.36.5 (that says it is another version) and 1.36.6
// (that breaks off).
func serveReleases(t *testing.T) *releases {
	r := &releases{}
	digest := func(b []byte) []byte {
		sum := sha256.Sum256(b)
		return []byte(hex.EncodeToString(sum[:]))
	}
	files := map[string][]byte{}
	for _, v := range []string{"1.33.13", "1.34.4", "1.35.4", "1.36.3"} {
		files[fmt.Sprintf("/stable-1.%d.txt", minorOf(v))] = []byte("v" + v + "\n")
	}
	for version, says := range map[string]string{"1.36.3": "1.36.3", "1.36.4": "1.36.4", "1.36.5": "1.36.3", "1.36.6": "1.36.6"} {
		name := fmt.Sprintf("/v%s/bin/linux/%s/kube-proxy", version, runtime.GOARCH)
		files[name] = script(says)
		files[name+".sha256"] = digest(files[name])
		if version == "1.36.4" {
			files[name+".sha256"] = digest([]byte("another"))
		}
	}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		file, ok := files[request.URL.Path]
		if !ok {
			http.NotFound(w, request)
			return
		}
		if strings.HasSuffix(request.URL.Path, "/kube-proxy") {
			r.requests.Add(1)
			if r.stall != nil {
				<-r.stall
			}
		}
		if strings.Contains(request.URL.Path, "/v1.36.6/") && !strings.HasSuffix(request.URL.Path, ".sha256") {
			w.Header().Set("Content-Length", "1000")
		}
		_, _ = w.Write(file)
	}))
	t.Cleanup(r.Close)
	return r
}

// lines collects progress.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

// moduleProxy has the go command know no modules but those put into the folder that it returns.
func moduleProxy(t *testing.T) string {
	dir := t.TempDir()
	for key, value := range map[string]string{
		"GOPROXY": "file://" + dir, "GOSUMDB": "off", "GONOPROXY": "none", "GOPRIVATE": "", "GOMODCACHE": filepath.Join(t.TempDir(), "mod"), "GOTOOLCHAIN": "local",
	} {
		t.Setenv(key, value)
	}
	t.Cleanup(func() { // it is made read-only
		if out, err := exec.Command("go", "clean", "-modcache").CombinedOutput(); err != nil {
			t.Errorf("go clean -modcache: %v: %s", err, out)
		}
	})
	return dir
}

// publish puts a module of the given files into a module proxy's folder.
func publish(t *testing.T, proxy, path, version string, files map[string]string) {
	src, at := t.TempDir(), filepath.Join(proxy, path, "@v")
	require.NoError(t, os.MkdirAll(at, 0o755))
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(src, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(src, name), []byte(text), 0o644))
	}
	var b bytes.Buffer
	require.NoError(t, zip.CreateFromDir(&b, module.Version{Path: path, Version: version}, src))
	for name, data := range map[string][]byte{
		version + ".zip": b.Bytes(), version + ".mod": []byte(files["go.mod"]), version + ".info": fmt.Appendf(nil, `{"Version":%q}`, version),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(at, name), data, 0o644))
	}
	list, err := os.OpenFile(filepath.Join(at, "list"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	_, err = fmt.Fprintln(list, version)
	require.NoError(t, errors.Join(err, list.Close()))
}

// scratchLeft lists what attempts have left in a cache.
func scratchLeft(t *testing.T, cache string) []string {
	left, err := filepath.Glob(filepath.Join(cache, ".*"))
	require.NoError(t, err)
	return left
}

func TestObtainRelease(t *testing.T) {
	moduleProxy(t)
	server := serveReleases(t)
	progress := new(lines)
	s := &Source{Cache: filepath.Join(t.TempDir(), "made", "here"), Release: server.URL + "/", Progress: progress.add}
	b, err := s.Obtain(t.Context(), "v1.36.3")
	require.NoError(t, err)
	assert.Equal(t, "1.36.3", b.Version)
	assert.Equal(t, server.URL+"/v1.36.3/bin/linux/"+runtime.GOARCH+"/kube-proxy", b.Origin)
	assert.True(t, filepath.IsAbs(b.Path))
	info, err := os.Stat(b.Path)
	require.NoError(t, err)
	assert.EqualValues(t, 0o755, info.Mode().Perm())
	assert.Contains(t, progress.text(), "downloading")
	assert.Contains(t, progress.text(), "ready (")
	assert.Empty(t, scratchLeft(t, s.Cache))

	again, err := s.Obtain(t.Context(), "1.36.3")
	require.NoError(t, err)
	assert.Equal(t, b, again)
	assert.EqualValues(t, 1, server.requests.Load(), "the second came from the cache")
	assert.Equal(t, []Binary{b}, Cached(s.Cache))

	asFile, err := s.Obtain(t.Context(), b.Path)
	require.NoError(t, err)
	assert.Equal(t, Binary{Version: "1.36.3", Path: b.Path, Origin: "given"}, asFile)

	require.NoError(t, s.Remove(t.Context(), "1.36.3"))
	assert.Empty(t, Cached(s.Cache))
	require.ErrorIs(t, s.Remove(t.Context(), "1.36.3"), fs.ErrNotExist)
}

func TestObtainConcurrently(t *testing.T) {
	moduleProxy(t)
	server := serveReleases(t)
	server.stall = make(chan struct{})
	progress := new(lines)
	cache := t.TempDir()
	const callers = 4
	errs := make(chan error, callers)
	for range callers {
		go func() {
			s := &Source{Cache: cache, Release: server.URL, Progress: progress.add}
			_, err := s.Obtain(t.Context(), "1.36.3")
			errs <- err
		}()
	}
	require.Eventually(t, func() bool {
		return strings.Count(progress.text(), "waiting for another one") == callers-1
	}, 10*time.Second, time.Millisecond)
	close(server.stall)
	for range callers {
		require.NoError(t, <-errs)
	}
	assert.EqualValues(t, 1, server.requests.Load())
	assert.Len(t, Cached(cache), 1)
}

func TestObtainErrors(t *testing.T) {
	proxy := moduleProxy(t)
	publish(t, proxy, kubernetesModule, "v1.36.1", map[string]string{"go.mod": "module k8s.io/kubernetes\n"})
	publish(t, proxy, kubernetesModule, "v1.34.0", map[string]string{"go.mod": "module k8s.io/kubernetes\n"})
	server := serveReleases(t)
	notProxy := filepath.Join(t.TempDir(), "tool")
	require.NoError(t, os.WriteFile(notProxy, []byte("#!/bin/sh\necho tool 1.0\n"), 0o755))
	oldProxy := filepath.Join(t.TempDir(), "kube-proxy")
	require.NoError(t, os.WriteFile(oldProxy, script("1.32.1"), 0o755))

	for _, tt := range []struct {
		what, version string
		want          []string
	}{
		{"wrong digest", "1.36.4", []string{"SHA-256", "nothing was kept"}},
		{"says another version", "1.36.5", []string{"says it is kube-proxy 1.36.3, not 1.36.5"}},
		{"unknown", "1.36.9", []string{"kube-proxy 1.36.9 was not found", "nearest first: 1.36.3, 1.36.1, 1.35.4, 1.34.4, 1.34.0, 1.33.13", "404", "module k8s.io/kubernetes not available"}},
		{"breaks off, and no module", "1.36.6", []string{"unexpected EOF", "module k8s.io/kubernetes not available"}},
		{"malformed", "1.36", []string{`"1.36": expected 1.MINOR.PATCH such as 1.37.2`}},
		{"a word", "latest", []string{"expected 1.MINOR.PATCH"}},
		{"too old", "1.32.0", []string{"expected 1.33 or later"}},
		{"no file", "/nonexistent/kube-proxy", []string{"/nonexistent/kube-proxy", "no such file"}},
		{"another tool", notProxy, []string{`said "tool 1.0"`, "not a kube-proxy"}},
		{"too old a file", oldProxy, []string{"is kube-proxy 1.32.1: expected 1.33 or later"}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			s := &Source{Cache: t.TempDir(), Release: server.URL}
			_, err := s.Obtain(t.Context(), tt.version)
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
			assert.Empty(t, scratchLeft(t, s.Cache))
			assert.Empty(t, Cached(s.Cache))
		})
	}
	_, err := (&Source{Cache: t.TempDir(), Release: server.URL}).Obtain(t.Context(), "1.36.9")
	var unknown *UnknownVersionError
	require.ErrorAs(t, err, &unknown)

	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := (&Source{Cache: t.TempDir(), Release: server.URL}).Obtain(ctx, "1.36.3")
		require.ErrorIs(t, err, context.Canceled)
	})
	t.Run("no go command", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		s := &Source{Cache: t.TempDir(), Release: server.URL}
		_, err := s.Obtain(t.Context(), "1.36.9")
		require.ErrorContains(t, err, "needs the go command")
		require.ErrorContains(t, err, "404")
	})
	t.Run("the cache is a file", func(t *testing.T) {
		_, err := (&Source{Cache: notProxy, Release: server.URL}).Obtain(t.Context(), "1.36.3")
		require.ErrorContains(t, err, notProxy)
	})
}

func TestUnreachableIsRemembered(t *testing.T) {
	moduleProxy(t)
	server := httptest.NewServer(http.NotFoundHandler())
	url := server.URL
	server.Close()
	s := &Source{Cache: t.TempDir(), Release: url}
	_, err := s.Obtain(t.Context(), "1.36.3")
	require.ErrorContains(t, err, "release server "+url+" not available")
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	_, remembered := unreachable.Load(url)
	assert.True(t, remembered)
	_, err = s.Versions(t.Context())
	require.ErrorContains(t, err, "could not be learnt")
	require.ErrorContains(t, err, url)
}

func TestVersions(t *testing.T) {
	proxy := moduleProxy(t)
	for _, v := range []string{"v1.13.0", "v1.36.10", "v1.36.2", "v1.38.0-beta.0"} {
		publish(t, proxy, kubernetesModule, v, map[string]string{"go.mod": "module k8s.io/kubernetes\n"})
	}
	versions, err := (&Source{Cache: t.TempDir(), Release: serveReleases(t).URL}).Versions(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"1.33.13", "1.34.4", "1.35.4", "1.36.2", "1.36.3", "1.36.10", "1.38.0-beta.0"}, versions)
	assert.Equal(t, []string{"1.36.10", "1.36.3", "1.36.2", "1.35.4", "1.34.4", "1.38.0-beta.0", "1.33.13"}, nearest("1.36.9", versions))
	for _, v := range Known() {
		parsed, err := ParseVersion(v)
		require.NoError(t, err)
		assert.Equal(t, v, parsed)
	}
}

// The modules here have the shape of Kubernetes': replaced staging modules, a version that the linker sets.
func TestObtainModule(t *testing.T) {
	proxy := moduleProxy(t)
	t.Setenv("GOFLAGS", "-mod=vendor -tags=nonsense") // is not heeded
	kubernetes := map[string]string{
		"go.mod": "module k8s.io/kubernetes\n\ngo 1.24.0\n\ngodebug default=go1.24\n\nrequire k8s.io/component-base v0.0.0\n\n" +
			"replace (\n\tk8s.io/component-base => ./staging/src/k8s.io/component-base\n\tk8s.io/unused => ./staging/src/k8s.io/unused\n)\n",
		"cmd/kube-proxy/main.go": "package main\n\nimport \"k8s.io/component-base/version\"\n\nfunc main() { say(\"Kubernetes \" + version.Version()) }\n",
		"cmd/kube-proxy/out.go":  "package main\n\nimport \"os\"\n\nfunc say(s string) { os.Stdout.WriteString(s + \"\\n\") }\n",
	}
	staging := map[string]string{
		"go.mod":             "module k8s.io/component-base\n\ngo 1.24.0\n",
		"version/version.go": "package version\n\nvar gitVersion = \"v0.0.0-master\"\n\nfunc Version() string { return gitVersion }\n",
	}
	for _, patch := range []string{"36.6", "36.7"} {
		publish(t, proxy, kubernetesModule, "v1."+patch, kubernetes)
		publish(t, proxy, "k8s.io/component-base", "v0."+patch, staging)
	}
	progress := new(lines)
	s := &Source{Cache: t.TempDir(), Release: serveReleases(t).URL, Progress: progress.add}
	b, err := s.Obtain(t.Context(), "1.36.7")
	require.NoError(t, err)
	assert.Equal(t, "1.36.7", b.Version)
	assert.Equal(t, "k8s.io/kubernetes@v1.36.7 built by "+runtime.Version(), b.Origin)
	for _, step := range []string{"404", "fetching the module", "building with go", "ready"} {
		assert.Contains(t, progress.text(), step)
	}
	assert.Empty(t, scratchLeft(t, s.Cache))

	t.Run("after a download that broke off", func(t *testing.T) {
		b, err := s.Obtain(t.Context(), "1.36.6")
		require.NoError(t, err)
		assert.Contains(t, b.Origin, "built by")
	})
	t.Run("does not compile", func(t *testing.T) {
		publish(t, proxy, kubernetesModule, "v1.36.8", map[string]string{
			"go.mod": "module k8s.io/kubernetes\n\ngo 1.24.0\n", "cmd/kube-proxy/main.go": "package main\n\nfunc main() { undefined() }\n",
		})
		_, err := s.Obtain(t.Context(), "1.36.8")
		require.ErrorContains(t, err, "go build")
		require.ErrorContains(t, err, "undefined: undefined")
		assert.Empty(t, scratchLeft(t, s.Cache))
	})
}

func TestSweep(t *testing.T) {
	moduleProxy(t)
	s := &Source{Cache: t.TempDir(), Release: serveReleases(t).URL}
	killed := filepath.Join(s.Cache, s.scratchPrefix("1.36.3")+"123")
	other := filepath.Join(s.Cache, s.scratchPrefix("1.35.3")+"123")
	require.NoError(t, os.Mkdir(killed, 0o755))
	require.NoError(t, os.Mkdir(other, 0o755))
	_, err := s.Obtain(t.Context(), "1.36.3")
	require.NoError(t, err)
	assert.Equal(t, []string{other}, scratchLeft(t, s.Cache))
}

func TestExplain(t *testing.T) {
	full := explain(fmt.Errorf("write: %w", syscall.ENOSPC), "/cache")
	require.ErrorIs(t, full, syscall.ENOSPC)
	require.ErrorContains(t, full, "no space for kube-proxy")
	require.ErrorContains(t, full, "/cache")
	denied := explain(&fs.PathError{Op: "mkdir", Path: "/cache", Err: syscall.EACCES}, "/cache")
	require.ErrorContains(t, denied, "make the cache folder /cache writable")
	compiler := explain(&goError{argv: []string{"go", "build"}, err: errors.New("exit status 1"), stderr: "write /tmp/x: no space left on device"}, "/cache")
	require.ErrorIs(t, compiler, syscall.ENOSPC)
	require.NoError(t, explain(nil, "/cache"))
}

func TestScratchGoMod(t *testing.T) {
	own, err := scratchGoMod("1.38.0-beta.0", []byte("module k8s.io/kubernetes\n\ngo 1.26.0\n\ngodebug default=go1.26\n\nrequire (\n\tk8s.io/api v0.0.0\n\tk8s.io/klog/v2 v2.1.0\n)\n\n"+
		"replace k8s.io/api => ./staging/src/k8s.io/api\n\nreplace k8s.io/sample => ./staging/src/k8s.io/sample\n\nreplace example.com/a => example.com/b v1.2.3\n"))
	require.NoError(t, err)
	text := string(own)
	for _, line := range []string{
		"go 1.26.0", "godebug default=go1.26", "k8s.io/kubernetes v1.38.0-beta.0", "k8s.io/api v0.38.0-beta.0",
		"replace k8s.io/api => k8s.io/api v0.38.0-beta.0", "replace k8s.io/sample => k8s.io/sample v0.38.0-beta.0", "replace example.com/a => example.com/b v1.2.3",
	} {
		assert.Contains(t, text, line)
	}
	assert.NotContains(t, text, "k8s.io/klog")
	assert.Equal(t, 2, strings.Count(text, "k8s.io/sample v0.38")+strings.Count(text, "k8s.io/sample =>"), "required by nobody")
}

// TestBuildRealModule builds the real thing: minutes, and the go command's way to its modules.
//
//	KPLAB_BUILD_KUBE_PROXY  the version to build
func TestBuildRealModule(t *testing.T) {
	version := os.Getenv("KPLAB_BUILD_KUBE_PROXY")
	if version == "" {
		t.Skip("set KPLAB_BUILD_KUBE_PROXY to a version to build it")
	}
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	s := &Source{Cache: t.TempDir(), Release: server.URL, Progress: func(line string) { t.Log(line) }}
	b, err := s.Obtain(t.Context(), version)
	require.NoError(t, err)
	assert.Equal(t, version, b.Version)
}
