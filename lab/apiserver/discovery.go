package apiserver

import (
	"cmp"
	"encoding/json"
	"net/http"
	"runtime"
	"slices"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// kubernetesVersion is the release whose API the server answers with.
const kubernetesVersion = "v1.37.2"

// discovery adds what tells clients of the API: kube-proxy asks for none of it, kubectl does.
func (s *Server) discovery(mux *http.ServeMux) {
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	}
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(version.Info{
			Major: "1", Minor: "37", GitVersion: kubernetesVersion,
			GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
		})
	})
	mux.HandleFunc("GET /api", func(w http.ResponseWriter, r *http.Request) {
		s.respond(w, r, http.StatusOK, &metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIVersions"},
			Versions: []string{"v1"},
		})
	})
	mux.HandleFunc("GET /apis", func(w http.ResponseWriter, r *http.Request) {
		list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}}
		for _, gv := range groupVersions() {
			if gv.Group == "" {
				continue
			}
			v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
			list.Groups = append(list.Groups, metav1.APIGroup{
				Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v,
			})
		}
		s.respond(w, r, http.StatusOK, list)
	})
	mux.HandleFunc("GET /api/{version}", s.resourceList)
	mux.HandleFunc("GET /apis/{group}/{version}", s.resourceList)
}

func groupVersions() []schema.GroupVersion {
	versions := []schema.GroupVersion{eventsv1.SchemeGroupVersion}
	for _, r := range resources {
		versions = append(versions, r.GroupVersion)
	}
	slices.SortFunc(versions, func(a, b schema.GroupVersion) int { return cmp.Compare(a.String(), b.String()) })
	return slices.Compact(versions)
}

func (s *Server) resourceList(w http.ResponseWriter, r *http.Request) {
	gv := groupVersion(r)
	if !slices.Contains(groupVersions(), gv) {
		s.unknown(w, r)
		return
	}
	list := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"},
		GroupVersion: gv.String(),
	}
	for _, res := range resources {
		if res.GroupVersion != gv {
			continue
		}
		a := metav1.APIResource{
			Name: res.name, SingularName: res.singular, Kind: res.kind, Namespaced: res.namespaced,
			Verbs: metav1.Verbs{"get", "list", "watch"},
		}
		if res.short != "" {
			a.ShortNames = []string{res.short}
		}
		list.APIResources = append(list.APIResources, a)
	}
	if gv == corev1.SchemeGroupVersion || gv == eventsv1.SchemeGroupVersion {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: "events", SingularName: "event", Kind: "Event", Namespaced: true, Verbs: metav1.Verbs{"create", "patch"},
		})
	}
	s.respond(w, r, http.StatusOK, list)
}
