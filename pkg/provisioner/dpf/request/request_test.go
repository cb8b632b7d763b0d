package request

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRefused(t *testing.T) {
	r, kind := schema.GroupResource{Resource: "dpuvolumes"}, schema.GroupKind{Kind: "DPUVolume"}
	broken := errors.New("x")
	for name, tc := range map[string]struct{ from, to error }{
		"invalid":      {apierrors.NewInvalid(kind, "v", nil), provisioner.ErrInvalid},
		"bad request":  {apierrors.NewBadRequest("x"), provisioner.ErrInvalid},
		"conflict":     {apierrors.NewConflict(r, "v", broken), provisioner.ErrBusy},
		"exists":       {apierrors.NewAlreadyExists(r, "v"), provisioner.ErrBusy},
		"forbidden":    {apierrors.NewForbidden(r, "v", broken), provisioner.ErrPrecondition},
		"unauthorized": {apierrors.NewUnauthorized("x"), provisioner.ErrPrecondition},
		"too many":     {apierrors.NewTooManyRequests("x", 1), provisioner.ErrUnavailable},
		"timeout":      {apierrors.NewServerTimeout(r, "get", 1), provisioner.ErrUnavailable},
		"not reached":  {errors.New("connection refused"), provisioner.ErrUnavailable},
		"canceled":     {context.Canceled, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			err := Refused("create volume v", fmt.Errorf("wrapped: %w", tc.from))
			if !errors.Is(err, tc.to) || !errors.Is(err, tc.from) || !strings.HasPrefix(err.Error(), "create volume v: ") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestWaited(t *testing.T) {
	const idle = "its controller has not looked at it yet; is snap-host-controller running?"
	var said []metav1.Condition
	kube.Conditions{List: &said}.False(storagev1alpha1.ConditionReady, storagev1alpha1.ReasonPending, "not ready: Bound: the array is full")
	var ready []metav1.Condition
	kube.Conditions{List: &ready}.True(storagev1alpha1.ConditionReady)
	for _, tc := range []struct {
		name       string
		err        error
		conditions []metav1.Condition
		want       string
	}{
		{"done", nil, said, ""},
		{"not looked at", context.DeadlineExceeded, nil, "make v: context deadline exceeded: " + idle},
		{"no words", context.DeadlineExceeded, ready, "make v: context deadline exceeded: " + idle},
		{"words", context.DeadlineExceeded, said, "make v: context deadline exceeded: not ready: Bound: the array is full"},
		{"given up", context.Canceled, said, "make v: context canceled: not ready: Bound: the array is full"},
		{"another failure", provisioner.ErrBusy, said, "make v: busy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := Waited(tc.err, "make v", tc.conditions)
			if tc.err == nil {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if !errors.Is(err, tc.err) || err.Error() != tc.want {
				t.Errorf("got %q, want %q", err, tc.want)
			}
		})
	}
}

func TestPatienceLeavesTimeToAnswer(t *testing.T) {
	o := Options{Timeout: time.Minute}
	if got := o.Patience(context.Background()); got != time.Minute {
		t.Errorf("without a deadline it waits %s, want the timeout", got)
	}
	near, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if got := o.Patience(near); got > 8*time.Second {
		t.Errorf("of ten seconds it waits %s, which leaves too little for the answer", got)
	}
}
