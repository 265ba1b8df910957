package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// routes maps the paths of the API to what answers them.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, root := range []string{"/api/{version}", "/apis/{group}/{version}"} {
		mux.HandleFunc("GET "+root+"/{resource}", s.list)
		mux.HandleFunc("GET "+root+"/{resource}/{name}", s.get)
		mux.HandleFunc("GET "+root+"/namespaces/{namespace}/{resource}", s.list)
		mux.HandleFunc("GET "+root+"/namespaces/{namespace}/{resource}/{name}", s.get)
		mux.HandleFunc("POST "+root+"/namespaces/{namespace}/events", s.createEvent)
		mux.HandleFunc("PATCH "+root+"/namespaces/{namespace}/events/{name}", s.patchEvent)
		for _, path := range []string{"/{resource}", "/{resource}/{name}", "/namespaces/{namespace}/{resource}", "/namespaces/{namespace}/{resource}/{name}"} {
			mux.HandleFunc(root+path, s.unknown)
		}
	}
	s.discovery(mux)
	mux.HandleFunc("/", s.unknown)
	return s.logged(mux)
}

// logged writes a line for each request when it begins, since watches last.
func (s *Server) logged(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		s.log.Info("request", "method", r.Method, "uri", r.URL.RequestURI(), "accept", r.Header.Get("Accept"), "agent", r.UserAgent())
		h.ServeHTTP(w, r)
		s.log.Debug("answered", "method", r.Method, "path", r.URL.Path, "after", time.Since(start))
	})
}

// requested finds the resource that a request names, or answers with an error and returns nil.
func (s *Server) requested(w http.ResponseWriter, r *http.Request) *resource {
	res := resourceNamed(groupVersion(r), r.PathValue("resource"))
	if res == nil || r.PathValue("namespace") != "" && !res.namespaced {
		s.unknown(w, r)
		return nil
	}
	return res
}

func groupVersion(r *http.Request) schema.GroupVersion {
	return schema.GroupVersion{Group: r.PathValue("group"), Version: r.PathValue("version")}
}

// unknown answers a request for what the server does not have, or does not let clients do.
func (s *Server) unknown(w http.ResponseWriter, r *http.Request) {
	if res := resourceNamed(groupVersion(r), r.PathValue("resource")); res != nil && r.Method != http.MethodGet {
		s.fail(w, r, apierrors.NewMethodNotSupported(res.groupResource(), r.Method))
		return
	}
	s.fail(w, r, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: fmt.Sprintf("the server could not find the requested resource: %s %s", r.Method, r.URL.Path),
	}})
}

// get answers with one object.
func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	res := s.requested(w, r)
	if res == nil {
		return
	}
	s.store.mutex.RLock()
	e := s.store.get(res, key{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")})
	s.store.mutex.RUnlock()
	if e == nil {
		s.fail(w, r, apierrors.NewNotFound(res.groupResource(), r.PathValue("name")))
		return
	}
	s.respond(w, r, http.StatusOK, e.object)
}

// list answers a LIST or WATCH of a resource, in all namespaces or in one.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	res := s.requested(w, r)
	if res == nil {
		return
	}
	var o metav1.ListOptions
	if err := scheme.ParameterCodec.DecodeParameters(r.URL.Query(), schema.GroupVersion{Version: "v1"}, &o); err != nil {
		s.fail(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	sel, err := newSelector(res, r.PathValue("namespace"), &o)
	if err != nil {
		s.fail(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	f := formatOf(r)
	if f == nil {
		s.notAcceptable(w, r)
		return
	}
	if err := checkListOptions(&o); err != nil {
		s.fail(w, r, err)
		return
	}
	if o.Watch {
		s.watch(w, r, sel, f, &o)
		return
	}
	s.listOnce(w, r, sel, &o)
}

// listOnce answers a LIST with everything there is: limit may be ignored, and so no list is ever to be continued.
func (s *Server) listOnce(w http.ResponseWriter, r *http.Request, sel selector, o *metav1.ListOptions) {
	asked, err := parseVersion(o.ResourceVersion)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	entries, version := s.store.list(sel)
	switch {
	case o.Continue != "":
		s.fail(w, r, apierrors.NewResourceExpired("the continue token was not made by this server"))
		return
	case asked > version:
		s.fail(w, r, tooLarge(asked, version))
		return
	case o.ResourceVersionMatch == metav1.ResourceVersionMatchExact && asked != version:
		s.fail(w, r, apierrors.NewResourceExpired("the server lists the current resource version only: "+formatVersion(version)))
		return
	}
	objects := make([]runtime.Object, len(entries))
	for i, e := range entries {
		objects[i] = e.object
	}
	list, err := sel.resource.newList(objects, formatVersion(version))
	if err != nil {
		s.fail(w, r, apierrors.NewInternalError(err))
		return
	}
	s.respond(w, r, http.StatusOK, list)
}

// tooLarge says that the server does not know a version yet, in the way by which clients recognise it.
func tooLarge(asked, current uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

// checkListOptions refuses the combinations that an API server refuses
// (k8s.io/apimachinery/pkg/apis/meta/internalversion/validation).
func checkListOptions(o *metav1.ListOptions) error {
	match := o.ResourceVersionMatch
	what := ""
	switch {
	case match != "" && match != metav1.ResourceVersionMatchExact && match != metav1.ResourceVersionMatchNotOlderThan:
		what = fmt.Sprintf("resourceVersionMatch: Unsupported value: %q: supported values: %q, %q", match,
			metav1.ResourceVersionMatchExact, metav1.ResourceVersionMatchNotOlderThan)
	case o.Watch && o.SendInitialEvents != nil && match != metav1.ResourceVersionMatchNotOlderThan:
		what = "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
	case o.Watch && o.SendInitialEvents == nil && match != "":
		what = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
	case !o.Watch && o.SendInitialEvents != nil:
		what = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"
	case !o.Watch && match != "" && o.ResourceVersion == "":
		what = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
	case !o.Watch && match == metav1.ResourceVersionMatchExact && o.ResourceVersion == "0":
		what = `resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"`
	default:
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: "ListOptions.meta.k8s.io is invalid: " + what,
	}}
}

// respond answers with an object in the format that the client accepts.
func (s *Server) respond(w http.ResponseWriter, r *http.Request, code int, o runtime.Object) {
	f := formatOf(r)
	if f == nil {
		s.notAcceptable(w, r)
		return
	}
	s.write(w, f, code, o)
}

func (s *Server) write(w http.ResponseWriter, f *format, code int, o runtime.Object) {
	data, err := f.encode(o)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", f.MediaType)
	w.WriteHeader(code)
	// The client has gone if this fails.
	_, _ = w.Write(data)
}

// fail answers with a metav1.Status.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	s.log.Info("refused", "method", r.Method, "uri", r.URL.RequestURI(), "code", status.Code, "message", status.Message)
	s.respond(w, r, int(status.Code), withKind(&status))
}

func (s *Server) notAcceptable(w http.ResponseWriter, r *http.Request) {
	status := metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: fmt.Sprintf("only %s and %s are known, not %q", runtime.ContentTypeJSON, runtime.ContentTypeProtobuf, r.Header.Get("Accept")),
	}
	s.write(w, formatJSON, http.StatusNotAcceptable, withKind(&status))
}

func withKind(s *metav1.Status) *metav1.Status {
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return s
}
