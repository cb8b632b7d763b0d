//go:build api

package schema

import "testing"

// TestLastGrant writes one mark after another to one volume: what the host cluster
// remembers of the right to write never goes back, and an epoch is granted once.
func TestLastGrant(t *testing.T) {
	const first = "{epoch: 5, dpu: d, attachment: a, attachmentUID: u}"
	for _, row := range []struct {
		name         string
		before, last string
		want         string
	}{
		{"the first", "", first, ""},
		{"the same again", first, first, ""},
		{"the next", first, "{epoch: 6, dpu: e, attachment: b, attachmentUID: v}", ""},
		{"the next of the same", first, "{epoch: 6, dpu: d, attachment: a, attachmentUID: u}", ""},
		{"over", first, "{epoch: 5, dpu: d, attachment: a, attachmentUID: u, over: true}", ""},
		{"the next of one that is over", "{epoch: 5, dpu: d, attachment: a, attachmentUID: u, over: true}", "{epoch: 6, dpu: e, attachment: b, attachmentUID: v}", ""},
		{"far above, by hand", first, "{epoch: 1000005, dpu: d, attachment: a, attachmentUID: u, over: true}", ""},
		{"it goes back", first, "{epoch: 4, dpu: d, attachment: a, attachmentUID: u}", "epoch never goes back"},
		{"it goes away", first, "", "status.lastGrant never goes away"},
		{"no epoch", "", "{epoch: 0, dpu: d, attachment: a, attachmentUID: u}", "should be greater than or equal to 1"},
		{"the same epoch of another DPU", first, "{epoch: 5, dpu: e, attachment: a, attachmentUID: u}", "an epoch is granted once"},
		{"the same epoch of another attachment", first, "{epoch: 5, dpu: d, attachment: b, attachmentUID: u}", "an epoch is granted once"},
		{"the same epoch of another object", first, "{epoch: 5, dpu: d, attachment: a, attachmentUID: v}", "an epoch is granted once"},
		{"over, and begun again", "{epoch: 5, dpu: d, attachment: a, attachmentUID: u, over: true}", first, "an epoch that is over stays so"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := object(t, "DPUVolume")
			mustCreate(t, o)
			put := func(grant string) error {
				if grant == "" {
					set(t, o, "status", yamlText("{phase: Bound}"))
				} else {
					set(t, o, "status", yamlText("{phase: Bound, lastGrant: "+grant+"}"))
				}
				return clusters.Host.Status().Update(t.Context(), o)
			}
			if row.before != "" {
				if err := put(row.before); err != nil {
					t.Fatal(err)
				}
			}
			check(t, put(row.last), row.want)
		})
	}
}

// TestLastGrantStays: nor does it go with the whole status.
func TestLastGrantStays(t *testing.T) {
	o := object(t, "DPUVolume")
	mustCreate(t, o)
	set(t, o, "status", yamlText("{lastGrant: {epoch: 5, dpu: d, attachment: a, attachmentUID: u}}"))
	if err := clusters.Host.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	set(t, o, "status", nil)
	check(t, clusters.Host.Status().Update(t.Context(), o), "status.lastGrant never goes away")
}

// TestAfterEpochStays: a claim that was made anew keeps after which epoch that was.
func TestAfterEpochStays(t *testing.T) {
	o := object(t, "WriterClaim")
	set(t, o, "spec.afterEpoch", yamlText("5"))
	mustCreate(t, o)
	set(t, o, "spec.afterEpoch", yamlText("4"))
	check(t, clusters.DPU.Update(t.Context(), o), "afterEpoch is immutable")
}
