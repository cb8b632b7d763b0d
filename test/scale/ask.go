package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/moor-storage/moor/test/scale/fleet"
	"github.com/moor-storage/moor/test/scale/world"
)

const (
	// page is how many volumes a page has.
	page = 500
	// lists and questions are how often it is asked.
	lists     = 5
	questions = 100
)

// listVolumes lists all volumes in pages.
func (b *bench) listVolumes(ctx context.Context) error {
	for range lists {
		begin, listed := time.Now(), 0
		for token := ""; ; {
			got, err := b.user.Driver.ListVolumes(ctx, &csispec.ListVolumesRequest{MaxEntries: page, StartingToken: token})
			if err != nil {
				return fmt.Errorf("list the volumes: %w", err)
			}
			listed += len(got.GetEntries())
			if token = got.GetNextToken(); token == "" {
				break
			}
		}
		took := time.Since(begin)
		if listed < b.o.hosts*b.o.volumes {
			return fmt.Errorf("list the volumes: %d are listed of at least %d", listed, b.o.hosts*b.o.volumes)
		}
		b.record.took(millis("list.pages"), took, nil)
	}
	return nil
}

// askExtender asks both questions of a scheduler over HTTP, with the names of all
// nodes, for pods with one claim.
func (b *bench) askExtender(ctx context.Context) error {
	var nodes []string
	for i := range b.o.hosts {
		nodes = append(nodes, fleet.NamesOf(i).Host)
	}
	for n := range questions {
		claim := world.Volume(n%b.o.hosts, n%b.o.volumes)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: world.Users, Name: "asked"}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
		body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: pod, NodeNames: &nodes})
		if err != nil {
			return fmt.Errorf("encode a question of the scheduler: %w", err)
		}
		for _, verb := range []string{"filter", "prioritize"} {
			took, err := b.ask(ctx, verb, body)
			if err != nil {
				return err
			}
			b.record.took(millis("extender."+verb), took, nil)
		}
	}
	return nil
}

// ask asks one question, and returns how long it took until the whole answer was
// there.
func (b *bench) ask(ctx context.Context, verb string, body []byte) (time.Duration, error) {
	begin := time.Now()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+b.extender+"/"+verb, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("ask the extender: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	got, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask the extender: %w", err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err == nil && got.StatusCode != http.StatusOK {
		err = errors.New(got.Status)
	}
	if err != nil {
		return 0, fmt.Errorf("ask the extender to %s: %w: %.300s", verb, err, text)
	}
	return time.Since(begin), nil
}
