package apiserver

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"sync"

	"github.com/munnerz/goautoneg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// format is one of the encodings that the server speaks.
type format struct {
	runtime.SerializerInfo
	index int // into encodings
	// watchType is the media type of a watch.
	watchType string
	// frame appends a watch event, with its object as encoded, to buffer.
	frame func(buffer []byte, event watch.EventType, object []byte) ([]byte, error)
}

var (
	formatJSON     = newFormat(0, runtime.ContentTypeJSON, runtime.ContentTypeJSON, frameJSON)
	formatProtobuf = newFormat(1, runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+";stream=watch", frameProtobuf)
)

func newFormat(index int, mediaType, watchType string, frame func([]byte, watch.EventType, []byte) ([]byte, error)) *format {
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		panic("the scheme lacks a serializer for " + mediaType)
	}
	return &format{info, index, watchType, frame}
}

// formatOf chooses a format by the request's Accept header, or returns nil if the client takes neither. Clauses for other
// representations (as=Table) are passed over, as an older API server does.
func formatOf(r *http.Request) *format {
	accept := r.Header.Get("Accept")
	if accept == "" {
		return formatJSON
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		if clause.Params["as"] != "" {
			continue
		}
		switch clause.Type + "/" + clause.SubType {
		case "application/json", "*/*", "application/*":
			return formatJSON
		case runtime.ContentTypeProtobuf:
			return formatProtobuf
		}
	}
	return nil
}

// encode encodes an object that carries its apiVersion and kind.
func (f *format) encode(o runtime.Object) ([]byte, error) {
	var b bytes.Buffer
	if err := f.Serializer.Encode(o, &b); err != nil {
		return nil, fmt.Errorf("encode %s as %s: %w", o.GetObjectKind().GroupVersionKind().Kind, f.MediaType, err)
	}
	return b.Bytes(), nil
}

// frameJSON makes one JSON object of an event.
func frameJSON(buffer []byte, event watch.EventType, object []byte) ([]byte, error) {
	buffer = append(buffer, `{"type":"`...)
	buffer = append(buffer, event...)
	buffer = append(buffer, `","object":`...)
	buffer = append(buffer, bytes.TrimRight(object, "\n")...)
	return append(buffer, "}\n"...), nil
}

// frameProtobuf makes a WatchEvent message of an event, after its length in four bytes.
func frameProtobuf(buffer []byte, event watch.EventType, object []byte) ([]byte, error) {
	message := metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: object}}
	size := message.Size()
	buffer = binary.BigEndian.AppendUint32(buffer, uint32(size))
	start := len(buffer)
	buffer = append(buffer, make([]byte, size)...)
	if _, err := message.MarshalToSizedBuffer(buffer[start:]); err != nil {
		return nil, fmt.Errorf("encode a watch event: %w", err)
	}
	return buffer, nil
}

// encodings keeps what an entry was encoded to, for all the watches that send it.
type encodings [2]struct {
	once sync.Once
	data []byte
	err  error
}

// encoded returns the entry's object in a format.
func (e *entry) encoded(f *format) ([]byte, error) {
	c := &e.encodings[f.index]
	c.once.Do(func() { c.data, c.err = f.encode(e.object) })
	return c.data, c.err
}
