package kube

import (
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestNotFound: an object is absent only if the API server says so of the object. That
// it does not know the kind, or that something else answers, is an error, for reading,
// deleting and taking finalizers off alike.
func TestNotFound(t *testing.T) {
	for name, tc := range map[string]struct {
		kind, body string
		absent     bool
	}{
		"the object does not exist": {"application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,` +
			`"message":"configmaps \"a\" not found","details":{"name":"a","kind":"configmaps"}}`, true},
		"the kind is not served": {"text/plain; charset=utf-8", "404 page not found\n", false},
		"a proxy answers":        {"text/html", "<html><h1>Not Found</h1></html>", false},
		"nothing is said":        {"application/json", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.kind)
				w.WriteHeader(http.StatusNotFound)
				_, _ = w.Write([]byte(tc.body))
			}))
			t.Cleanup(server.Close)
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
			c, err := client.New(&rest.Config{Host: server.URL}, client.Options{Scheme: scheme.Scheme, Mapper: mapper})
			if err != nil {
				t.Fatal(err)
			}
			object := func() *corev1.ConfigMap {
				cm := &corev1.ConfigMap{}
				cm.Namespace, cm.Name, cm.UID, cm.ResourceVersion, cm.Finalizers = "default", "a", "uid", "1", []string{"moor/hold"}
				return cm
			}
			if found, err := Find(t.Context(), c, client.ObjectKeyFromObject(object()), object()); found || (err == nil) != tc.absent {
				t.Errorf("find: %v, %v", found, err)
			}
			if err := Delete(t.Context(), c, object()); (err == nil) != tc.absent {
				t.Errorf("delete: %v", err)
			}
			if err := RemoveFinalizers(t.Context(), c, object(), "moor/hold"); (err == nil) != tc.absent {
				t.Errorf("remove a finalizer: %v", err)
			}
		})
	}
}
