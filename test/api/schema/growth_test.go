//go:build api

package schema

import "testing"

// TestGrowth: a volume's size can be raised at any time, and lowered again only
// while it has not grown that far. have is what the vendor gave; "" is nothing.
func TestGrowth(t *testing.T) {
	const (
		shrink = "spec.resources.requests.storage can be lowered only while it stays above what the volume has"
		limit  = "resources.limits.storage can be raised, not "
	)
	for _, row := range []struct {
		name, before, have, after string
		want                      string
	}{
		{"raised", "{requests: {storage: 1Gi}}", "1Gi", "{requests: {storage: 2Gi}}", ""},
		{"raised, as a number", "{requests: {storage: 1073741824}}", "1Gi", "{requests: {storage: 2147483648}}", ""},
		{"the same in other words", "{requests: {storage: 1Gi}}", "", "{requests: {storage: 1024Mi}}", ""},
		{"raised before it is made", "{requests: {storage: 1Gi}}", "", "{requests: {storage: 2Gi}}", ""},
		{"lowered before it is made", "{requests: {storage: 2Gi}}", "", "{requests: {storage: 1Gi}}", shrink},
		{"lowered below what it has", "{requests: {storage: 3Gi}}", "2Gi", "{requests: {storage: 1Gi}}", shrink},
		{"lowered to what it has", "{requests: {storage: 3Gi}}", "2Gi", "{requests: {storage: 2Gi}}", shrink},
		{"taken back in part", "{requests: {storage: 900Ti}}", "2Gi", "{requests: {storage: 3Gi}}", ""},
		{"limit raised", "{requests: {storage: 1Gi}, limits: {storage: 2Gi}}", "1Gi", "{requests: {storage: 3Gi}, limits: {storage: 4Gi}}", ""},
		{"limit lowered", "{requests: {storage: 1Gi}, limits: {storage: 2Gi}}", "1Gi", "{requests: {storage: 1Gi}, limits: {storage: 1Gi}}", limit + "lowered"},
		{"limit removed", "{requests: {storage: 1Gi}, limits: {storage: 2Gi}}", "1Gi", "{requests: {storage: 1Gi}}", limit + "set or removed"},
		{"limit set", "{requests: {storage: 1Gi}}", "1Gi", "{requests: {storage: 1Gi}, limits: {storage: 2Gi}}", limit + "set or removed"},
		{"limit of something else", "{requests: {storage: 1Gi}, limits: {x: 1}}", "1Gi", "{requests: {storage: 1Gi}, limits: {storage: 2Gi}}", limit + "set or removed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := object(t, "DPUVolume")
			set(t, o, "spec.resources", yamlText(row.before))
			mustCreate(t, o)
			if row.have != "" {
				set(t, o, "status.state.volumeInfo.capacity.storage", row.have)
				if err := clientOf("DPUVolume").Status().Update(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			set(t, o, "spec.resources", yamlText(row.after))
			check(t, clientOf("DPUVolume").Update(t.Context(), o), row.want)
		})
	}
}
