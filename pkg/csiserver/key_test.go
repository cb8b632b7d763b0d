package csiserver

import (
	"context"
	"sync"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
)

// With a key of their own, calls on one volume go through side by side.
func TestOneCallPerKey(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	c := &controller{create: func(context.Context, *csispec.CreateVolumeRequest) (*csispec.CreateVolumeResponse, error) {
		both.Done()
		both.Wait() // the other one comes in before this one leaves
		return &csispec.CreateVolumeResponse{}, nil
	}}
	client := csispec.NewControllerClient(serve(t, c, Options{Logger: logr.Discard(), Key: func(req any) string {
		return req.(*csispec.CreateVolumeRequest).GetParameters()["key"]
	}}))
	done := make(chan error, 2)
	for _, key := range []string{"a", "b"} {
		go func() {
			_, err := client.CreateVolume(t.Context(), &csispec.CreateVolumeRequest{Name: "v", Parameters: map[string]string{"key": key}})
			done <- err
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
