package kube

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var errBroken = errors.New("the server is gone")

// server counts writes and breaks them on demand.
type server struct {
	client.Client
	writes int
	broken bool
}

func newServer(t *testing.T, objects ...client.Object) *server {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s := &server{}
	write := func(do func() error) error {
		s.writes++
		if s.broken {
			return errBroken
		}
		return do()
	}
	raw := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Pod{}).WithObjects(objects...).Build()
	s.Client = interceptor.NewClient(raw, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write(func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(func() error {
				// The fake client ignores preconditions.
				var options client.DeleteOptions
				options.ApplyOptions(opts)
				have := &corev1.Pod{}
				if err := c.Get(ctx, client.ObjectKeyFromObject(o), have); err != nil {
					return err
				}
				if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != have.UID {
					return apierrors.NewConflict(corev1.Resource("pods"), o.GetName(), errors.New("precondition failed: UID"))
				}
				return c.Delete(ctx, o, opts...)
			})
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write(func() error {
				// So does it the UID in a patch.
				data, err := p.Data(o)
				var patch metav1.PartialObjectMetadata
				if err := errors.Join(err, json.Unmarshal(data, &patch)); err != nil {
					return err
				}
				have := &corev1.Pod{}
				if err := c.Get(ctx, client.ObjectKeyFromObject(o), have); err != nil {
					return err
				}
				if patch.UID != "" && patch.UID != have.UID {
					return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), o.GetName(), field.ErrorList{
						field.Invalid(field.NewPath("metadata", "uid"), patch.UID, "field is immutable"),
					})
				}
				return c.Patch(ctx, o, p, opts...)
			})
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return write(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
	return s
}

func pod(uid types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: uid, Labels: map[string]string{"a": "1"}, Finalizers: []string{"x/y"}}}
}

func (s *server) pod(t *testing.T) *corev1.Pod {
	t.Helper()
	p := pod("")
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	return p
}

type patcher func(ctx context.Context, c client.Client, p *corev1.Pod, change func(*corev1.Pod)) (bool, error)

var patchers = map[string]patcher{
	"Patch": Patch[*corev1.Pod], "PatchStatus": PatchStatus[*corev1.Pod], "PatchExact": PatchExact[*corev1.Pod],
}

// TestNoWrite: what changes nothing is not written, also where nil and empty
// differ only to Go.
func TestNoWrite(t *testing.T) {
	for name, patch := range patchers {
		for what, change := range map[string]func(*corev1.Pod){
			"nothing":    func(*corev1.Pod) {},
			"same value": func(p *corev1.Pod) { p.Labels["a"] = "1"; p.Status.Phase = "" },
			"empty for nil": func(p *corev1.Pod) {
				p.Annotations = map[string]string{}
				p.Status.Conditions = []corev1.PodCondition{}
			},
			"there and back": func(p *corev1.Pod) { p.Labels["b"] = "2"; delete(p.Labels, "b") },
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				s := newServer(t, pod("u"))
				wrote, err := patch(t.Context(), s, s.pod(t), change)
				if wrote || err != nil || s.writes != 0 {
					t.Errorf("wrote %v, %v, %d writes", wrote, err, s.writes)
				}
			})
		}
	}
}

func TestPatches(t *testing.T) {
	for name, patch := range patchers {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, pod("u"))
			p := s.pod(t)
			before := p.ResourceVersion
			wrote, err := patch(t.Context(), s, p, func(p *corev1.Pod) { p.Labels["b"], p.Status.Message = "2", "words" })
			if !wrote || err != nil || s.writes != 1 {
				t.Fatalf("wrote %v, %v, %d writes", wrote, err, s.writes)
			}
			got := s.pod(t)
			status := name == "PatchStatus"
			if (got.Labels["b"] == "2") == status || (got.Status.Message == "words") != status {
				t.Errorf("labels %v, status %q", got.Labels, got.Status.Message)
			}
			if p.ResourceVersion == before || p.ResourceVersion != got.ResourceVersion {
				t.Errorf("the object in hand is of version %s, the server's of %s", p.ResourceVersion, got.ResourceVersion)
			}
			s.broken = true
			_, err = patch(t.Context(), s, p, func(p *corev1.Pod) { p.Labels["c"], p.Status.Reason = "3", "r" })
			if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "*v1.Pod ns/pod: the server is gone") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestStale: only PatchExact fails if another wrote in between.
func TestStale(t *testing.T) {
	for name, patch := range patchers {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, pod("u"))
			stale := s.pod(t)
			if _, err := Patch(t.Context(), s, s.pod(t), func(p *corev1.Pod) { p.Labels["other"] = "1" }); err != nil {
				t.Fatal(err)
			}
			_, err := patch(t.Context(), s, stale, func(p *corev1.Pod) { p.Labels["mine"], p.Status.Message = "1", "words" })
			if apierrors.IsConflict(err) != (name == "PatchExact") || (err != nil) != (name == "PatchExact") {
				t.Errorf("got %v", err)
			}
			if got := s.pod(t); got.Labels["other"] != "1" {
				t.Errorf("another writer's label was lost: %v", got.Labels)
			}
		})
	}
}

// TestReplaced: an object that was removed and made anew since it was read is another
// one. It is not written, or, as a server takes every status, the write fails all the
// same.
func TestReplaced(t *testing.T) {
	for name, patch := range patchers {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, pod("old"))
			old := s.pod(t)
			if err := errors.Join(s.Delete(t.Context(), removable(t, s)), s.Create(t.Context(), pod("new"))); err != nil {
				t.Fatal(err)
			}
			wrote, err := patch(t.Context(), s, old, func(p *corev1.Pod) { p.Labels["mine"], p.Status.Message = "1", "words" })
			if wrote || !apierrors.IsConflict(err) {
				t.Errorf("wrote %v, %v", wrote, err)
			}
			if got := s.pod(t); got.UID != "new" || got.Labels["mine"] != "" {
				t.Errorf("it has UID %s and labels %v now", got.UID, got.Labels)
			}
		})
	}
	t.Run("another invalid field", func(t *testing.T) {
		invalid := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "pod", field.ErrorList{
			field.Invalid(field.NewPath("spec", "epoch"), 1, "never goes back"),
		})
		if refusesUID(invalid) {
			t.Error("taken for another object")
		}
	})
}

// removable is the pod without what would keep it.
func removable(t *testing.T, s *server) *corev1.Pod {
	t.Helper()
	p := s.pod(t)
	if err := RemoveFinalizers(t.Context(), s, p, p.Finalizers...); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFinalizers(t *testing.T) {
	s := newServer(t, pod("u"))
	p := s.pod(t)
	for i, want := range []bool{true, false} {
		if added, err := AddFinalizer(t.Context(), s, p, "f/g"); added != want || err != nil {
			t.Errorf("time %d: %v, %v", i, added, err)
		}
	}
	if err := RemoveFinalizers(t.Context(), s, p, "f/g", "not/there"); err != nil {
		t.Error(err)
	}
	if got := s.pod(t).Finalizers; len(got) != 1 || got[0] != "x/y" {
		t.Errorf("finalizers %v", got)
	}
	writes := s.writes
	if err := RemoveFinalizers(t.Context(), s, p, "f/g"); err != nil || s.writes != writes {
		t.Errorf("removed again: %v, %d writes", err, s.writes-writes)
	}
	gone := s.pod(t)
	if err := s.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	gone = s.pod(t)
	stale := gone.DeepCopy()
	for _, o := range []*corev1.Pod{gone, stale} { // the second finds it gone
		if err := RemoveFinalizers(t.Context(), s, o, "x/y"); err != nil {
			t.Error(err)
		}
	}
}

func TestCreate(t *testing.T) {
	s := newServer(t)
	if made, err := Create(t.Context(), s, pod("u")); !made || err != nil {
		t.Fatalf("%v, %v", made, err)
	}
	again := pod("")
	again.Labels = map[string]string{"other": "1"}
	if made, err := Create(t.Context(), s, again); made || err != nil || again.UID != "u" || again.Labels["a"] != "1" {
		t.Errorf("made %v, %v; the object in hand has UID %s and labels %v, want the server's", made, err, again.UID, again.Labels)
	}
	s.broken = true
	if _, err := Create(t.Context(), s, pod("v")); !errors.Is(err, errBroken) || !strings.HasPrefix(err.Error(), "create *v1.Pod ns/pod: ") {
		t.Errorf("got %v", err)
	}
}

func TestDelete(t *testing.T) {
	now := metav1.Now()
	for _, tc := range []struct {
		name   string
		there  *corev1.Pod
		change func(*corev1.Pod)
		gone   bool
		writes int
	}{
		{"there", pod("u"), func(*corev1.Pod) {}, true, 1},
		{"another of the name", pod("v"), func(*corev1.Pod) {}, false, 1},
		{"nothing there", nil, func(*corev1.Pod) {}, true, 1},
		{"being deleted already", pod("u"), func(p *corev1.Pod) { p.DeletionTimestamp = &now }, false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer(t)
			if tc.there != nil {
				tc.there.Finalizers = nil
				s = newServer(t, tc.there)
			}
			read := pod("u")
			tc.change(read)
			if err := Delete(t.Context(), s, read); err != nil {
				t.Errorf("got %v", err)
			}
			found, err := Find(t.Context(), s, client.ObjectKeyFromObject(read), &corev1.Pod{})
			if err != nil || found == tc.gone || s.writes != tc.writes {
				t.Errorf("found %v (%v) after %d writes", found, err, s.writes)
			}
		})
	}
	s := newServer(t, pod("u"))
	s.broken = true
	if err := Delete(t.Context(), s, pod("u")); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
}

type brokenReader struct{ client.Reader }

func (brokenReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errBroken
}

func TestFind(t *testing.T) {
	_, err := Find(t.Context(), brokenReader{}, types.NamespacedName{Namespace: "ns", Name: "pod"}, &corev1.Pod{})
	if !errors.Is(err, errBroken) || err.Error() != "read *v1.Pod ns/pod: the server is gone" {
		t.Errorf("got %v", err)
	}
}

// TestCreateLive: what exists already is read from the server, not from a
// cache that may not show it.
func TestCreateLive(t *testing.T) {
	s := newServer(t, pod("u"))
	again := pod("")
	if made, err := CreateLive(t.Context(), s, s, again); made || err != nil || again.UID != "u" {
		t.Errorf("made %v, got %v, UID %s", made, err, again.UID)
	}
	if made, err := CreateLive(t.Context(), s, brokenReader{}, pod("")); made || !errors.Is(err, errBroken) {
		t.Errorf("made %v, got %v", made, err)
	}
	_, err := CreateLive(t.Context(), s, newServer(t), pod(""))
	if !OnlyConflicts(err) || err.Error() != `read *v1.Pod ns/pod, which exists: Operation cannot be fulfilled on *v1.Pod "pod": pods "pod" not found` {
		t.Errorf("what exists and is not seen yet: %v, want a conflict", err)
	}
	other := pod("")
	other.Name = "other"
	if made, err := CreateLive(t.Context(), s, brokenReader{}, other); !made || err != nil {
		t.Errorf("made %v, got %v", made, err)
	}
}

// TestDeleteExact: only what was read, and only as it was.
func TestDeleteExact(t *testing.T) {
	there := pod("u")
	there.Finalizers = nil
	s := newServer(t, there)
	stale := s.pod(t)
	if _, err := Patch(t.Context(), s, s.pod(t), func(p *corev1.Pod) { p.Labels["other"] = "1" }); err != nil {
		t.Fatal(err)
	}
	if err := DeleteExact(t.Context(), s, stale); !apierrors.IsConflict(err) {
		t.Errorf("one that has changed: %v", err)
	}
	now := s.pod(t)
	for _, what := range []string{"as it is", "gone already"} {
		if err := DeleteExact(t.Context(), s, now); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if found, err := Find(t.Context(), s, client.ObjectKeyFromObject(now), &corev1.Pod{}); found || err != nil {
			t.Errorf("%s: found %v, %v", what, found, err)
		}
	}
}

// TestPatchOfWhatIsNotTold: a difference that JSON does not tell is not written.
func TestPatchOfWhatIsNotTold(t *testing.T) {
	there := pod("u")
	at := metav1.NewTime(time.Unix(1e9, 0))
	there.Status.StartTime = &at
	s := newServer(t, there)
	later := metav1.NewTime(at.Add(time.Millisecond))
	for name, write := range map[string]func(*corev1.Pod) (bool, error){
		"patched": func(p *corev1.Pod) (bool, error) {
			return PatchStatus(t.Context(), s, p, func(p *corev1.Pod) { p.Status.StartTime = &later })
		},
		"patched if it is as it was read": func(p *corev1.Pod) (bool, error) {
			return PatchStatusExact(t.Context(), s, p, func(p *corev1.Pod) { p.Status.StartTime = &later })
		},
	} {
		before := s.pod(t)
		if wrote, err := write(s.pod(t)); wrote || err != nil {
			t.Errorf("%s: wrote %v, %v", name, wrote, err)
		}
		if now := s.pod(t); now.ResourceVersion != before.ResourceVersion {
			t.Errorf("%s: resourceVersion %s, then %s", name, before.ResourceVersion, now.ResourceVersion)
		}
	}
	for text, want := range map[string]bool{
		`{}`: true, `{"metadata":{"uid":"u"}}`: true, `{"metadata":{"resourceVersion":"1","uid":"u"}}`: true,
		`{"metadata":{"labels":null,"uid":"u"}}`: false, `{"metadata":{"uid":"u"},"spec":{}}`: false, `{"status":null}`: false, `[]`: false,
	} {
		if got := identifiesOnly([]byte(text)); got != want {
			t.Errorf("%s changes nothing: %v, want %v", text, got, want)
		}
	}
}
