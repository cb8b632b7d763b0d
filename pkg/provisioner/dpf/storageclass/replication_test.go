package storageclass

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
)

func TestReplicationParameters(t *testing.T) {
	for name, tc := range map[string]struct {
		in, want params
		words    string
	}{
		"all":                {params{"maxShares": "3", "maxMountReplicaCount": "1", "replicaWarmth": "Attached", "failover": "Off"}, params{"maxShares": "3", "maxMountReplicaCount": "1", "replicaWarmth": "Attached", "failover": "Off"}, ""},
		"as few as possible": {params{"maxShares": "1", "maxMountReplicaCount": "0"}, params{"maxShares": "1", "maxMountReplicaCount": "0"}, ""},
		"as many as allowed": {params{"maxShares": "3", "maxMountReplicaCount": "2"}, params{"maxShares": "3", "maxMountReplicaCount": "2"}, ""},
		"odd numbers":        {params{"maxShares": "+03"}, params{"maxShares": "3"}, ""},
		"empty is none":      {params{"maxShares": "", "maxMountReplicaCount": "", "replicaWarmth": "", "failover": ""}, params{}, ""},
		"failover alone":     {params{"failover": "Fence"}, params{"failover": "Fence"}, ""},
		"deadMount":          {params{"deadMount": "Tell"}, params{"deadMount": "Tell"}, ""},

		"release":         {params{"replicaReleaseAfter": "90s"}, params{"replicaReleaseAfter": "1m30s"}, ""},
		"release at once": {params{"replicaReleaseAfter": "0s"}, params{"replicaReleaseAfter": "0s"}, ""},

		"path timeout":            {params{"maxShares": "2", "pathTimeout": "90s"}, params{"maxShares": "2", "pathTimeout": "1m30s"}, ""},
		"path timeout, alone":     {params{"failover": "Fence", "pathTimeout": "10s"}, params{"failover": "Fence", "pathTimeout": "10s"}, ""},
		"moves never":             {params{"pathTimeout": "0s"}, params{"pathTimeout": "0s"}, ""},
		"path timeout, too short": {params{"maxShares": "2", "pathTimeout": "9s"}, nil, `pathTimeout is "9s", allowed are 10s to 3600s, and 0s for never`},
		"path timeout, too long":  {params{"maxShares": "2", "pathTimeout": "2h"}, nil, "allowed are 10s to 3600s"},
		"path timeout, no unit":   {params{"maxShares": "2", "pathTimeout": "15"}, nil, "a duration of whole seconds"},
		"path timeout, one share": {params{"pathTimeout": "15s"}, nil, "moves by itself only with failover=Fence"},
		"path timeout, off":       {params{"maxShares": "2", "failover": "Off", "pathTimeout": "15s"}, nil, "moves by itself only with failover=Fence"},
		"pathtimeout":             {params{"pathtimeout": "15s"}, nil, `did you mean "pathTimeout"`},

		"release without unit": {params{"replicaReleaseAfter": "90"}, nil, `replicaReleaseAfter is "90": a duration of whole seconds`},
		"release before":       {params{"replicaReleaseAfter": "-1s"}, nil, "a duration of whole seconds"},
		"release too exact":    {params{"replicaReleaseAfter": "1.5s"}, nil, "a duration of whole seconds"},
		"release in an age":    {params{"replicaReleaseAfter": "2000000h"}, nil, "a duration of whole seconds"},
		"replicaReleaseafter":  {params{"replicaReleaseafter": "1s"}, nil, `did you mean "replicaReleaseAfter"`},
		"no share":             {params{"maxShares": "0"}, nil, "maxShares is 0: at least 1"},
		"negative shares":      {params{"maxShares": "-2"}, nil, "maxShares is -2: at least 1"},
		"no number":            {params{"maxShares": "two"}, nil, `maxShares is "two": a whole number`},
		"a fraction":           {params{"maxShares": "1.5"}, nil, "a whole number"},
		"too large":            {params{"maxShares": "2147483648"}, nil, "at most 2147483647"},
		"as many as shares":    {params{"maxShares": "2", "maxMountReplicaCount": "2"}, nil, "maxMountReplicaCount is 2, allowed are 0 to 1"},
		"replicas, one share":  {params{"maxMountReplicaCount": "1"}, nil, "allowed are 0 to 0: maxShares is 1"},
		"negative replicas":    {params{"maxShares": "2", "maxMountReplicaCount": "-1"}, nil, "maxMountReplicaCount is -1"},
		"replicas no number":   {params{"maxShares": "2", "maxMountReplicaCount": "x"}, nil, `maxMountReplicaCount is "x"`},
		"warmth":               {params{"replicaWarmth": "Hot"}, nil, `replicaWarmth is "Hot", allowed are PreEmulated and Attached`},
		"warmth in lower case": {params{"replicaWarmth": "attached"}, nil, "allowed are PreEmulated and Attached"},
		"deadMount off":        {params{"deadMount": "Off"}, nil, `deadMount is "Off", allowed are Restart and Tell`},
		"deadmount":            {params{"deadmount": "Tell"}, nil, `did you mean "deadMount"`},
		"failover":             {params{"failover": "On"}, nil, `failover is "On", allowed are Fence and Off`},
		"maxShare":             {params{"maxShare": "2"}, nil, `did you mean "maxShares"`},
		"maxshares":            {params{"maxshares": "2"}, nil, `did you mean "maxShares"`},
		"maxMountReplicacount": {params{"maxMountReplicacounts": "2"}, nil, `did you mean "maxMountReplicaCount"`},
		"replicaWarmt":         {params{"replicaWarmt": "Attached"}, nil, `did you mean "replicaWarmth"`},
		"failOver":             {params{"failOver": "Off"}, nil, `did you mean "failover"`},
	} {
		t.Run(name, func(t *testing.T) {
			tc.in["policy"] = "p"
			before := maps.Clone(tc.in)
			got, err := Normalize(tc.in)
			if !maps.Equal(before, tc.in) {
				t.Errorf("the request was changed to %v", tc.in)
			}
			if tc.words != "" {
				if !errors.Is(err, provisioner.ErrInvalid) || !strings.Contains(err.Error(), tc.words) {
					t.Errorf("error %v, want ErrInvalid with %s", err, tc.words)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			maps.Copy(tc.want, params{"policy": "p", "functionType": "vf", "hotplugFunction": "false"})
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}
