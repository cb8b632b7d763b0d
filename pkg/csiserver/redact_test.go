package csiserver

import (
	"strings"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
)

func TestPublishContextsAreNotLogged(t *testing.T) {
	cases := map[string]any{
		"answer":  &csispec.ControllerPublishVolumeResponse{PublishContext: map[string]string{"the-key": "opens"}},
		"request": &csispec.NodeStageVolumeRequest{VolumeId: "the-key", PublishContext: map[string]string{"k": "opens"}, Secrets: map[string]string{"s": "opens"}},
	}
	for name, m := range cases {
		t.Run(name, func(t *testing.T) {
			got := loggable{m}.String()
			if strings.Contains(got, "opens") || !strings.Contains(got, "the-key") {
				t.Errorf("logged as %s", got)
			}
		})
	}
	kept := cases["answer"].(*csispec.ControllerPublishVolumeResponse)
	if kept.GetPublishContext()["the-key"] != "opens" {
		t.Error("the message itself was changed")
	}
	for _, m := range []any{nil, (*csispec.ControllerPublishVolumeResponse)(nil), &csispec.ControllerPublishVolumeResponse{}, "words"} {
		_ = loggable{m}.String() // does not panic
	}
}
