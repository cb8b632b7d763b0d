package csiserver

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

func TestPublishContextsAreNotLogged(t *testing.T) {
	cases := map[string]any{
		"answer":  &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"the-key": "opens"}},
		"request": &csi.NodeStageVolumeRequest{VolumeId: "the-key", PublishContext: map[string]string{"k": "opens"}, Secrets: map[string]string{"s": "opens"}},
	}
	for name, m := range cases {
		t.Run(name, func(t *testing.T) {
			got := loggable{m}.String()
			if strings.Contains(got, "opens") || !strings.Contains(got, "the-key") {
				t.Errorf("logged as %s", got)
			}
		})
	}
	kept := cases["answer"].(*csi.ControllerPublishVolumeResponse)
	if kept.GetPublishContext()["the-key"] != "opens" {
		t.Error("the message itself was changed")
	}
	for _, m := range []any{nil, (*csi.ControllerPublishVolumeResponse)(nil), &csi.ControllerPublishVolumeResponse{}, "words"} {
		_ = loggable{m}.String() // does not panic
	}
}
