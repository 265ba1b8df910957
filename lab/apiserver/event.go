package apiserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

// eventLog keeps the Events that clients sent, in the order in which they first came, as they were sent: core/v1 or
// events.k8s.io/v1. Clients cannot read them.
type eventLog struct {
	mutex  sync.Mutex
	events []object
}

// find returns the index of an event or -1. The caller holds the mutex.
func (l *eventLog) find(gv schema.GroupVersion, k key) int {
	for i, e := range l.events {
		if keyOf(e) == k && e.GetObjectKind().GroupVersionKind().GroupVersion() == gv {
			return i
		}
	}
	return -1
}

// Events returns the Events that clients sent, in the order in which they first came, with the latest of their patches.
// Those of core/v1 are converted as an API server does.
func (s *Server) Events() []eventsv1.Event {
	s.events.mutex.Lock()
	defer s.events.mutex.Unlock()
	events := make([]eventsv1.Event, 0, len(s.events.events))
	for _, e := range s.events.events {
		switch e := e.(type) {
		case *eventsv1.Event:
			events = append(events, *e.DeepCopy())
		case *corev1.Event:
			events = append(events, fromCoreEvent(e.DeepCopy()))
		}
	}
	return events
}

func fromCoreEvent(e *corev1.Event) eventsv1.Event {
	converted := eventsv1.Event{
		ObjectMeta:               e.ObjectMeta,
		EventTime:                e.EventTime,
		ReportingController:      e.ReportingController,
		ReportingInstance:        e.ReportingInstance,
		Action:                   e.Action,
		Reason:                   e.Reason,
		Regarding:                e.InvolvedObject,
		Related:                  e.Related,
		Note:                     e.Message,
		Type:                     e.Type,
		DeprecatedSource:         e.Source,
		DeprecatedFirstTimestamp: e.FirstTimestamp,
		DeprecatedLastTimestamp:  e.LastTimestamp,
		DeprecatedCount:          e.Count,
	}
	converted.SetGroupVersionKind(eventsv1.SchemeGroupVersion.WithKind("Event"))
	if e.Series != nil {
		converted.Series = &eventsv1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return converted
}

// mostEventBytes is how large an Event or its patch may be.
const mostEventBytes = 1 << 20

// createEvent answers a POST of an Event.
func (s *Server) createEvent(w http.ResponseWriter, r *http.Request) {
	gv := groupVersion(r)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostEventBytes))
	if err != nil {
		s.fail(w, r, apierrors.NewBadRequest("read the event: "+err.Error()))
		return
	}
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		s.fail(w, r, apierrors.NewBadRequest("decode the event: "+err.Error()))
		return
	}
	e, ok := decoded.(object)
	gvk := gv.WithKind("Event")
	if kinds, _, err := scheme.Scheme.ObjectKinds(decoded); !ok || err != nil || kinds[0] != gvk {
		s.fail(w, r, apierrors.NewBadRequest(fmt.Sprintf("expected a %s Event, got %T", gv, decoded)))
		return
	}
	e.GetObjectKind().SetGroupVersionKind(gvk)
	e.SetNamespace(r.PathValue("namespace"))

	s.events.mutex.Lock()
	if e.GetName() == "" {
		e.SetName(fmt.Sprintf("%s%d", e.GetGenerateName(), len(s.events.events)+1))
	}
	found := s.events.find(gv, keyOf(e)) >= 0
	if !found {
		setCreated(e)
		e.SetResourceVersion(s.nextVersion())
		s.events.events = append(s.events.events, e)
	}
	s.events.mutex.Unlock()
	if found {
		s.fail(w, r, apierrors.NewAlreadyExists(schema.GroupResource{Group: gv.Group, Resource: "events"}, e.GetName()))
		return
	}
	s.respond(w, r, http.StatusCreated, e.DeepCopyObject())
}

// patchEvent answers a strategic merge patch of an Event, by which clients count its repetitions.
func (s *Server) patchEvent(w http.ResponseWriter, r *http.Request) {
	gv := groupVersion(r)
	k := key{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	patch, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostEventBytes))
	if err != nil {
		s.fail(w, r, apierrors.NewBadRequest("read the patch: "+err.Error()))
		return
	}
	if mediaType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); mediaType != string(types.StrategicMergePatchType) {
		s.fail(w, r, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch",
			schema.GroupResource{Group: gv.Group, Resource: "events"}, k.Name,
			fmt.Sprintf("expected %s, got %q", types.StrategicMergePatchType, mediaType), 0, true))
		return
	}
	e, err := s.patchStoredEvent(gv, k, patch)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.respond(w, r, http.StatusOK, e)
}

func (s *Server) patchStoredEvent(gv schema.GroupVersion, k key, patch []byte) (runtime.Object, error) {
	s.events.mutex.Lock()
	defer s.events.mutex.Unlock()
	i := s.events.find(gv, k)
	if i < 0 {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: gv.Group, Resource: "events"}, k.Name)
	}
	old := s.events.events[i]
	gvk := gv.WithKind("Event")
	empty, err := scheme.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	original, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	merged, err := strategicpatch.StrategicMergePatch(original, patch, empty)
	if err != nil {
		return nil, apierrors.NewBadRequest("apply the patch: " + err.Error())
	}
	if err := json.Unmarshal(merged, empty); err != nil {
		return nil, apierrors.NewBadRequest("apply the patch: " + err.Error())
	}
	e := empty.(object)
	e.GetObjectKind().SetGroupVersionKind(gvk)
	e.SetNamespace(k.Namespace)
	e.SetName(k.Name)
	e.SetUID(old.GetUID())
	e.SetCreationTimestamp(old.GetCreationTimestamp())
	e.SetResourceVersion(s.nextVersion())
	s.events.events[i] = e
	return e.DeepCopyObject(), nil
}

// nextVersion takes a resourceVersion for what is stored outside the tables.
func (s *Server) nextVersion() string {
	s.store.mutex.Lock()
	defer s.store.mutex.Unlock()
	s.store.version++
	return formatVersion(s.store.version)
}
