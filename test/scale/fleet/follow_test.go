package fleet

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
)

// step is what a server answers to one watch.
type step struct {
	// want is the version from which on the watch has to be.
	want   string
	err    error
	events []watch.Event
	// lasts is how long the watch stays before its events come.
	lasts time.Duration
}

func claimAt(name, version string) *moorv1alpha1.WriterClaim {
	return &moorv1alpha1.WriterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: kit.Namespace, Name: name, ResourceVersion: version}}
}

func changed(name, version string) watch.Event {
	return watch.Event{Type: watch.Modified, Object: claimAt(name, version)}
}

// expired is how a server says that it has forgotten a version.
func expired() *metav1.Status {
	status := apierrors.NewResourceExpired("too old").Status()
	return &status
}

// cut is what a client makes of a connection that ends within an event.
func cut() *metav1.Status {
	status := apierrors.NewInternalError(errors.New("unable to decode an event from the watch stream")).Status()
	return &status
}

// TestFollow: a watch that ends or cannot be made goes on where it was, and one that is
// too old begins with all that is there.
func TestFollow(t *testing.T) {
	steps := []step{
		{want: "5", events: []watch.Event{changed("a", "6"), changed("b", "7")}},
		{want: "7", err: errors.New("connection refused")},
		{want: "7", err: apierrors.NewServiceUnavailable("it starts")},
		{want: "7", events: []watch.Event{{Type: watch.Bookmark, Object: claimAt("", "8")}, changed("c", "9")}},
		{want: "9", lasts: 2 * patience, events: []watch.Event{{Type: watch.Error, Object: cut()}}},
		{want: "9", events: []watch.Event{{Type: watch.Error, Object: expired()}}},
		{want: "20", events: []watch.Event{changed("d", "21")}}, // all was told before
		{want: "21", err: &apierrors.StatusError{ErrStatus: *expired()}},
		{want: "20", events: []watch.Event{changed("e", "22")}},
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		lists := 0
		scheme, err := kit.Scheme()
		if err != nil {
			t.Fatal(err)
		}
		c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
			List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				lists++
				claims, ok := list.(*moorv1alpha1.WriterClaimList)
				if !ok {
					t.Fatalf("listed %T", list)
				}
				claims.ResourceVersion = "5"
				claims.Items, claims.Continue = nil, ""
				switch at := (&client.ListOptions{}).ApplyOptions(options); {
				case lists == 1 || at.Limit == 0:
				case at.Continue == "":
					claims.ResourceVersion, claims.Items, claims.Continue = "20", []moorv1alpha1.WriterClaim{*claimAt("first", "3")}, "next"
				default:
					claims.ResourceVersion, claims.Items = "20", []moorv1alpha1.WriterClaim{*claimAt(at.Continue, "20")}
				}
				return nil
			},
			Watch: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
				if len(steps) == 0 {
					cancel()
					return nil, context.Canceled
				}
				next := steps[0]
				steps = steps[1:]
				if got := (&client.ListOptions{}).ApplyOptions(options).Raw.ResourceVersion; got != next.want {
					t.Errorf("watched from %s, want %s", got, next.want)
				}
				if next.err != nil {
					return nil, next.err
				}
				w := watch.NewFakeWithChanSize(len(next.events), false)
				time.AfterFunc(next.lasts, func() {
					for _, e := range next.events {
						w.Action(e.Type, e.Object)
					}
					w.Stop()
				})
				return w, nil
			},
		})
		var got []string
		if err := Follow(ctx, c, &moorv1alpha1.WriterClaimList{}, func(o client.Object) { got = append(got, o.GetName()) }); err != nil {
			t.Error(err)
		}
		if want := []string{"a", "b", "c", "first", "next", "d", "first", "next", "e"}; !slices.Equal(got, want) || len(steps) > 0 {
			t.Errorf("told of %v, want %v; %d steps are left", got, want, len(steps))
		}
	})
}

// TestFollowGivesUp: a server that never comes back is an error.
func TestFollowGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme, err := kit.Scheme()
		if err != nil {
			t.Fatal(err)
		}
		c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
			Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
				return nil, apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "watch", moorv1alpha1.GroupVersion.WithResource("writerclaims").GroupResource(), "", "away", 0, false)
			},
		})
		begin := time.Now()
		if err := Follow(t.Context(), c, &moorv1alpha1.WriterClaimList{}, func(client.Object) {}); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("ended with %v", err)
		}
		if took := time.Since(begin); took < patience {
			t.Errorf("gave up after %s", took)
		}
	})
}
