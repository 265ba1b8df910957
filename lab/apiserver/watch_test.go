package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// event is a watch event as it comes over the wire in JSON.
type event struct {
	Type   string
	Object struct {
		Kind, Message string
		Code          int
		Metadata      struct {
			Name, ResourceVersion string
			Annotations           map[string]string
		}
	}
}

// stream opens a watch in JSON; next returns its next event, or io.EOF.
func stream(t *testing.T, ctx context.Context, url string) (next func() (event, error)) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, "application/json", response.Header.Get("Content-Type"))
	d := json.NewDecoder(response.Body)
	return func() (event, error) {
		var e event
		return e, d.Decode(&e)
	}
}

// want asserts the next event's type and name.
func want(t *testing.T, next func() (event, error), eventType, name string) event {
	t.Helper()
	e, err := next()
	require.NoError(t, err)
	require.Equal(t, eventType+" "+name, e.Type+" "+e.Object.Metadata.Name)
	return e
}

func node(name, labels string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s, labels: {%s}}}", name, labels)
}

func TestWatchList(t *testing.T) {
	s := New(Config{})
	s.bookmarkEvery = 20 * time.Millisecond
	url := start(t, s)
	apply(t, s, node("b", ""), node("a", ""))
	next := stream(t, deadline(t), url+"/api/v1/nodes?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	want(t, next, "ADDED", "a")
	want(t, next, "ADDED", "b")
	end := want(t, next, "BOOKMARK", "")
	assert.Equal(t, "Node", end.Object.Kind)
	assert.Equal(t, map[string]string{"k8s.io/initial-events-end": "true"}, end.Object.Metadata.Annotations)
	assert.Equal(t, formatVersion(s.store.version), end.Object.Metadata.ResourceVersion)
	later := want(t, next, "BOOKMARK", "")
	assert.Empty(t, later.Object.Metadata.Annotations)
}

func TestWatchFromVersion(t *testing.T) {
	s := New(Config{History: 4})
	url := start(t, s)
	ctx := deadline(t)
	apply(t, s, node("a", ""))
	first := s.Objects()[2].(*corev1.Node).ResourceVersion
	apply(t, s, node("a", "x: z"), node("b", ""))
	require.NoError(t, s.Delete(ctx, "Node", "", "b"))
	next := stream(t, ctx, url+"/api/v1/nodes?watch=true&resourceVersion="+first)
	want(t, next, "MODIFIED", "a")
	want(t, next, "ADDED", "b")
	gone := want(t, next, "DELETED", "b")
	assert.Equal(t, formatVersion(s.store.version), gone.Object.Metadata.ResourceVersion, "of the deletion")

	// Without resourceVersion a watch begins with what exists, without sendInitialEvents with what changes.
	want(t, stream(t, ctx, url+"/api/v1/nodes?watch=true"), "ADDED", "a")
	changes := stream(t, ctx, url+"/api/v1/nodes?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	apply(t, s, node("a", "first: change"))
	want(t, changes, "MODIFIED", "a")

	for i := range 20 {
		apply(t, s, node("a", fmt.Sprintf("n: '%d'", i)))
	}
	expired, err := stream(t, ctx, url+"/api/v1/nodes?watch=true&resourceVersion="+first)()
	require.NoError(t, err)
	assert.Equal(t, "ERROR", expired.Type)
	assert.Equal(t, http.StatusGone, expired.Object.Code)
	assert.Contains(t, expired.Object.Message, "too old resource version")

	_, err = stream(t, ctx, url+"/api/v1/nodes?watch=true&timeoutSeconds=1&resourceVersion=1000000")()
	assert.ErrorIs(t, err, io.EOF, "ends after its time")
}

func TestWatchSelectors(t *testing.T) {
	s := New(Config{})
	url := start(t, s)
	ctx := deadline(t)
	byLabel := stream(t, ctx, url+"/api/v1/nodes?watch=true&labelSelector=x%3Dz")
	byName := stream(t, ctx, url+"/api/v1/nodes?watch=true&fieldSelector=metadata.name%3Da")
	inNamespace := stream(t, ctx, url+"/api/v1/namespaces/default/services?watch=true&fieldSelector=spec.clusterIP!%3DNone")
	apply(t, s, manifestOf("Namespace", "other", ""), `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: other}, spec: {ports: [{port: 80}]}}`,
		svc("none", "clusterIP: None, ports: [{port: 80}]"), svc("web", "ports: [{port: 80}]"),
		node("b", "x: z"), node("a", ""), node("a", "x: z"), node("a", ""))
	require.NoError(t, s.Delete(ctx, "Node", "", "a"))
	require.NoError(t, s.Delete(ctx, "Node", "", "b"))
	want(t, byLabel, "ADDED", "b")
	want(t, byLabel, "ADDED", "a")
	want(t, byLabel, "DELETED", "a")
	want(t, byLabel, "DELETED", "b")
	want(t, byName, "ADDED", "a")
	want(t, byName, "MODIFIED", "a")
	want(t, byName, "MODIFIED", "a")
	want(t, byName, "DELETED", "a")
	want(t, inNamespace, "ADDED", "web")
}

func TestCloseEndsWatches(t *testing.T) {
	s := New(Config{})
	url := start(t, s)
	next := stream(t, deadline(t), url+"/api/v1/nodes?watch=true")
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	_, err := next()
	assert.Error(t, err)
	assert.NoError(t, <-closed)
	assert.NotNil(t, s.Objects())
}

func get(t *testing.T, url, accept string) (int, string, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(deadline(t), http.MethodGet, url, nil)
	require.NoError(t, err)
	r.Header.Set("Accept", accept)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, response.Header.Get("Content-Type"), string(body)
}

func TestRequests(t *testing.T) {
	s := New(Config{})
	url := start(t, s)
	apply(t, s, node("a", ""))
	for _, tc := range []struct {
		path, accept string
		code         int
		contains     string
	}{
		{"/healthz", "", 200, "ok"},
		{"/version", "", 200, `"gitVersion":"v1.37.2"`},
		{"/api", "", 200, `"versions":["v1"]`},
		{"/apis", "", 200, `"discovery.k8s.io/v1"`},
		{"/api/v1", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json", 200, `"name":"services"`},
		{"/apis/events.k8s.io/v1", "", 200, `"kind":"Event"`},
		{"/apis/apps/v1", "", 404, "could not find the requested resource"},
		{"/api/v1/nodes/a", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", 200, `"kind":"Node"`},
		{"/api/v1/nodes/a", "text/html", 406, "NotAcceptable"},
		{"/api/v1/nodes/b", "", 404, `nodes \"b\" not found`},
		{"/api/v1/namespaces/default/nodes", "", 404, "could not find"},
		{"/api/v1/namespaces/default", "", 200, `"kind":"Namespace"`},
		{"/api/v1/nodes?limit=1", "", 200, `"kind":"NodeList"`},
		{"/api/v1/nodes?continue=x", "", 410, "Expired"},
		{"/api/v1/nodes?resourceVersion=1000", "", 504, "ResourceVersionTooLarge"},
		{"/api/v1/nodes?resourceVersion=1&resourceVersionMatch=Exact", "", 410, "Expired"},
		{"/api/v1/nodes?resourceVersion=x", "", 400, "expected a whole number"},
		{"/api/v1/nodes?labelSelector=a%3D%3D%3Db", "", 400, "label selector"},
		{"/api/v1/nodes?fieldSelector=spec.colour%3Dred", "", 400, "field label not supported: spec.colour"},
		{"/api/v1/nodes?sendInitialEvents=true", "", 422, "sendInitialEvents is forbidden for list"},
		{"/api/v1/nodes?watch=true&sendInitialEvents=true", "", 422, "requires setting resourceVersionMatch"},
		{"/api/v1/nodes?watch=true&resourceVersionMatch=NotOlderThan", "", 422, "forbidden for watch unless"},
		{"/api/v1/nodes?resourceVersionMatch=NotOlderThan", "", 422, "unless resourceVersion is provided"},
	} {
		code, _, body := get(t, url+tc.path, tc.accept)
		assert.Equal(t, tc.code, code, tc.path)
		assert.Contains(t, body, tc.contains, tc.path)
	}
	_, contentType, body := get(t, url+"/api/v1/nodes/a", "application/vnd.kubernetes.protobuf,application/json")
	assert.Equal(t, "application/vnd.kubernetes.protobuf", contentType)
	assert.Equal(t, "k8s\x00", body[:4])

	response, err := http.Post(url+"/api/v1/nodes", "application/json", bytes.NewReader(nil))
	require.NoError(t, err)
	defer response.Body.Close()
	assert.Equal(t, http.StatusMethodNotAllowed, response.StatusCode, "clients write nothing but Events")
}

func TestEvents(t *testing.T) {
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		s := New(Config{})
		c := client(t, start(t, s), contentType)
		ctx := deadline(t)
		created, err := c.EventsV1().Events("default").Create(ctx, &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "e1", Namespace: "default"},
			Reason:     "Starting", Note: "it starts", Regarding: corev1.ObjectReference{Kind: "Node", Name: "n1"},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		assert.NotEmpty(t, created.UID)
		_, err = c.EventsV1().Events("default").Create(ctx, created, metav1.CreateOptions{})
		assert.True(t, apierrors.IsAlreadyExists(err))
		_, err = c.EventsV1().Events("default").Patch(ctx, "e1", types.StrategicMergePatchType, []byte(`{"series": {"count": 2}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		_, err = c.EventsV1().Events("default").Patch(ctx, "e2", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{})
		assert.True(t, apierrors.IsNotFound(err))
		_, err = c.CoreV1().Events("default").Create(ctx, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "e-", Namespace: "default"}, Message: "old style", Count: 3,
		}, metav1.CreateOptions{})
		require.NoError(t, err)

		events := s.Events()
		require.Len(t, events, 2)
		assert.Equal(t, "it starts", events[0].Note)
		assert.Equal(t, int32(2), events[0].Series.Count)
		assert.Equal(t, "old style", events[1].Note)
		assert.Equal(t, int32(3), events[1].DeprecatedCount)
	}
}
