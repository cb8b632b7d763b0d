package kube

import (
	"testing"

	clientgofeatures "k8s.io/client-go/features"
)

// gates has what was set.
type gates map[clientgofeatures.Feature]bool

func (g gates) Enabled(name clientgofeatures.Feature) bool { return g[name] }

func (g gates) Set(name clientgofeatures.Feature, on bool) error {
	g[name] = on
	return nil
}

// TestWholeLists: initial lists are not streamed, unless the environment says so.
func TestWholeLists(t *testing.T) {
	for name, c := range map[string]struct{ said, want bool }{"nothing said": {false, false}, "said": {true, true}} {
		got := gates{clientgofeatures.WatchListClient: true}
		err := prefer(got, func(key string) (string, bool) { return "true", c.said && key == "KUBE_FEATURE_WatchListClient" })
		if err != nil || got[clientgofeatures.WatchListClient] != c.want {
			t.Errorf("%s: streamed %v, %v", name, got[clientgofeatures.WatchListClient], err)
		}
	}
}

// TestCachesReadWholeLists: every program that makes a cache has the feature of this
// client-go off.
func TestCachesReadWholeLists(t *testing.T) {
	if err := wholeLists(); err != nil {
		t.Fatal(err)
	}
	if clientgofeatures.FeatureGates().Enabled(clientgofeatures.WatchListClient) {
		t.Error("initial lists are streamed")
	}
}
