package usercluster

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/gzip"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"kplab/lab/remote"
)

// PodVerb is what kplab is run with in a pod: see [remote.Answer].
const PodVerb = "pod"

const program = folder + "/kplab"

// packed is kplab itself, compressed. It runs in any image, if nothing is linked in at run time.
func packed(path string) ([]byte, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("kplab's own program: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("%s is linked dynamically, and pods have not what it needs: build kplab with CGO_ENABLED=0, as make build does", path)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// exec runs a command in a pod, with the WebSocket protocol, or where a server or a proxy in between does not know that, SPDY.
func (f *Fixture) exec(ctx context.Context, pod string, argv []string, stdin io.Reader, stdout, stderr io.Writer) error {
	url := f.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(f.namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: argv, Stdin: stdin != nil, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	ws, err := remotecommand.NewWebSocketExecutor(f.config, "GET", url.String())
	if err != nil {
		return err
	}
	spdy, err := remotecommand.NewSPDYExecutor(f.config, "POST", url)
	if err != nil {
		return err
	}
	either, err := remotecommand.NewFallbackExecutor(ws, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return err
	}
	return either.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Stderr: stderr})
}

// install puts kplab into a pod.
func (f *Fixture) install(ctx context.Context, pod string, packed []byte) error {
	var said bytes.Buffer
	script := fmt.Sprintf("gunzip -c >%[1]s.part && chmod 755 %[1]s.part && mv %[1]s.part %[1]s", program)
	if err := f.exec(ctx, pod, []string{"sh", "-c", script}, bytes.NewReader(packed), &said, &said); err != nil {
		return fmt.Errorf("copy kplab into pod %s: %w%s (the image must have sh, gunzip, chmod, mv and sleep: --pod-image)", pod, err, quoted(said.String()))
	}
	return nil
}

func quoted(said string) string {
	if said = strings.TrimSpace(said); said == "" {
		return ""
	}
	return ": " + said
}

// start runs kplab in a pod until the client is closed, or until the fixture ends.
func (f *Fixture) start(pod string) *remote.Client {
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	f.streams.Go(func() {
		var said bytes.Buffer
		err := f.exec(f.streaming, pod, []string{program, PodVerb}, stdin, stdout, &said)
		if err == nil {
			err = io.EOF
		} else {
			err = fmt.Errorf("%w%s", err, quoted(said.String()))
		}
		stdin.CloseWithError(errors.New("kplab there has ended"))
		stdout.CloseWithError(err)
	})
	return remote.NewClient("pod "+pod, in, out)
}
