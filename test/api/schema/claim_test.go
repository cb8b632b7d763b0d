//go:build api

package schema

import (
	"fmt"
	"hash/fnv"
	"strings"
	"testing"
)

// TestWriterClaimHistory writes one status after another to one claim.
func TestWriterClaimHistory(t *testing.T) {
	const ends = "one that is held ends first"
	receipt := "{kind: DPU, holder: d, epoch: 1}"
	for _, row := range []struct {
		name   string
		before []string
		last   string
		want   string
	}{
		{"first grant", nil, "{phase: Granted, holder: d, attachment: a, epoch: 1}", ""},
		{"same again", []string{"{phase: Granted, holder: d, epoch: 1}"}, "{phase: Granted, holder: d, epoch: 1}", ""},
		{"fencing", []string{"{phase: Granted, holder: d, epoch: 1}"}, "{phase: Fencing, holder: d, epoch: 1}", ""},
		{"freed", []string{"{phase: Granted, holder: d, epoch: 1}"}, "{phase: Free, epoch: 1, receipts: [" + receipt + "]}", ""},
		{"second grant", []string{"{phase: Granted, holder: d, epoch: 1}", "{phase: Free, epoch: 1}"}, "{phase: Granted, holder: e, epoch: 2}", ""},
		{"epoch goes back", []string{"{phase: Granted, holder: d, epoch: 5}"}, "{phase: Granted, holder: d, epoch: 4}", "epoch never goes back"},
		{"epoch goes back to nothing", []string{"{phase: Granted, holder: d, epoch: 5}"}, "{phase: Free}", "epoch never goes back"},
		{"epoch goes back to 0", []string{"{phase: Free, epoch: 1}"}, "{phase: Free, epoch: 0}", "epoch never goes back"},
		{"lostEpoch goes back", []string{"{phase: Free, epoch: 5, lostEpoch: 5}"}, "{phase: Free, epoch: 5, lostEpoch: 4}", "lostEpoch never goes back"},
		{"lostEpoch goes back to nothing", []string{"{phase: Free, epoch: 5, lostEpoch: 5}"}, "{phase: Free, epoch: 5}", "lostEpoch never goes back"},
		{"epoch goes back over a free claim", []string{"{phase: Granted, holder: d, epoch: 2}", "{phase: Free, epoch: 2}"}, "{phase: Granted, holder: e, epoch: 1}", "epoch never goes back"},
		{"phase is Free by default", nil, "{epoch: 0}", ""},
		{"the attachment made anew", []string{"{phase: Granted, holder: d, epoch: 1, attachmentUID: u}"}, "{phase: Granted, holder: d, epoch: 1, attachmentUID: v}", "stays with the attachment"},
		{"bound", []string{"{phase: Granted, holder: d, epoch: 1}"}, "{phase: Granted, holder: d, epoch: 1, attachmentUID: v}", ""},
		{"another epoch, another attachment", []string{"{phase: Granted, holder: d, epoch: 1, attachmentUID: u}", "{phase: Free, epoch: 1}"}, "{phase: Granted, holder: d, epoch: 2, attachmentUID: v}", ""},
		{"granted while it is granted", []string{"{phase: Granted, holder: d, epoch: 1, attachmentUID: u}"}, "{phase: Granted, holder: d, epoch: 2, attachmentUID: v}", ends},
		{"granted to another meanwhile", []string{"{phase: Granted, holder: d, epoch: 1}"}, "{phase: Granted, holder: e, epoch: 1}", ends},
		{"granted again while it is fenced", []string{"{phase: Granted, holder: d, epoch: 1}", "{phase: Fencing, holder: d, epoch: 1}"}, "{phase: Granted, holder: d, epoch: 1}", ends},
		{"granted anew while it is fenced", []string{"{phase: Granted, holder: d, epoch: 1}", "{phase: Fencing, holder: d, epoch: 1}"}, "{phase: Granted, holder: e, epoch: 2}", ends},
		{"lost by a person, after a restore", []string{"{phase: Granted, holder: d, epoch: 1, attachment: a, attachmentUID: u}"}, "{phase: Lost, holder: d, epoch: 1, lostEpoch: 1, lost: [{dpu: d, attachment: a, attachmentUID: u, epoch: 1}]}", ""},
		{"granted while it is lost", []string{"{phase: Lost, holder: d, epoch: 1, lostEpoch: 1}"}, "{phase: Granted, holder: d, epoch: 2, lostEpoch: 1}", ends},
		{"freed, and its attachment", []string{"{phase: Granted, holder: d, epoch: 1, attachmentUID: u}"}, "{phase: Free, epoch: 1}", ""},
		{"eight receipts", nil, "{phase: Free, receipts: [" + strings.Repeat(receipt+", ", 7) + receipt + "]}", ""},
		{"nine receipts", nil, "{phase: Free, receipts: [" + strings.Repeat(receipt+", ", 8) + receipt + "]}", "must have at most 8 items"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := object(t, "WriterClaim")
			mustCreate(t, o)
			for _, status := range row.before {
				set(t, o, "status", yamlText(status))
				if err := clusters.DPU.Status().Update(t.Context(), o); err != nil {
					t.Fatalf("%s: %v", status, err)
				}
			}
			set(t, o, "status", yamlText(row.last))
			check(t, clusters.DPU.Status().Update(t.Context(), o), row.want)
		})
	}
}

// TestWriterClaimStatusStays: the history of epochs cannot be wiped by
// removing the status whole.
func TestWriterClaimStatusStays(t *testing.T) {
	o := object(t, "WriterClaim")
	mustCreate(t, o)
	set(t, o, "status", yamlText("{phase: Granted, holder: d, epoch: 5}"))
	if err := clusters.DPU.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	set(t, o, "status", nil)
	check(t, clusters.DPU.Status().Update(t.Context(), o), "status never goes away")
}

// shortened keeps a name within the limits of an object's name.
func shortened(name string) string {
	h := fnv.New32()
	_, _ = h.Write([]byte(name))
	return fmt.Sprintf("t-%x", h.Sum32())
}
