package storageclass

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

type params = map[string]string

func TestNormalize(t *testing.T) {
	for name, tc := range map[string]struct {
		in, want params
		words    string
	}{
		"policy alone":              {params{"policy": "p"}, params{"policy": "p", "functionType": "vf", "hotplugFunction": "false"}, ""},
		"PF, hot-plugged":           {params{"policy": "p", "functionType": "PF", "hotplugFunction": "true"}, params{"policy": "p", "functionType": "pf", "hotplugFunction": "true"}, ""},
		"Vf":                        {params{"policy": "p", "functionType": "Vf"}, params{"policy": "p", "functionType": "vf", "hotplugFunction": "false"}, ""},
		"static PF":                 {params{"policy": "p", "functionType": "pf", "hotplugFunction": "False"}, params{"policy": "p", "functionType": "pf", "hotplugFunction": "false"}, ""},
		"vendor keys stay":          {params{"policy": "p", "raid": "10", "Pool": "a b"}, params{"policy": "p", "functionType": "vf", "hotplugFunction": "false", "raid": "10", "Pool": "a b"}, ""},
		"virtio-fs":                 {params{"policy": "p", "emulation": "VirtioFS"}, params{"policy": "p", "functionType": "pf", "hotplugFunction": "true", "emulation": "virtiofs"}, ""},
		"virtio-fs in full":         {params{"policy": "p", "emulation": "virtiofs", "functionType": "pf", "hotplugFunction": "true"}, params{"policy": "p", "functionType": "pf", "hotplugFunction": "true", "emulation": "virtiofs"}, ""},
		"NVMe by name":              {params{"policy": "p", "emulation": "nvme"}, params{"policy": "p", "functionType": "vf", "hotplugFunction": "false"}, ""},
		"virtio-fs on a VF":         {params{"policy": "p", "emulation": "virtiofs", "functionType": "vf", "hotplugFunction": "false"}, nil, "hot-plugged physical functions alone"},
		"virtio-fs, static PF":      {params{"policy": "p", "emulation": "virtiofs", "functionType": "pf", "hotplugFunction": "false"}, nil, "hot-plugged physical functions alone"},
		"virtio-fs, hot-plugged VF": {params{"policy": "p", "emulation": "virtiofs", "functionType": "vf"}, nil, "functionType=pf"},
		"another emulation":         {params{"policy": "p", "emulation": "9p"}, nil, "allowed are nvme and virtiofs"},
		"emulatoin":                 {params{"policy": "p", "emulatoin": "nvme"}, nil, `did you mean "emulation"`},
		"no policy":                 {params{"raid": "10"}, nil, `no parameter "policy"`},
		"nothing":                   {nil, nil, `no parameter "policy"`},
		"empty policy":              {params{"policy": " "}, nil, `no parameter "policy"`},
		"hot-plugged VF":            {params{"policy": "p", "hotplugFunction": "true"}, nil, "functionType=pf"},
		"bad type":                  {params{"policy": "p", "functionType": "sf"}, nil, "allowed are vf and pf"},
		"bad boolean":               {params{"policy": "p", "hotplugFunction": "yes"}, nil, "allowed are true and false"},
		"Policy":                    {params{"Policy": "p"}, nil, `did you mean "policy"`},
		"polcy":                     {params{"policy": "p", "polcy": "q"}, nil, `did you mean "policy"`},
		"functiontype":              {params{"policy": "p", "functiontype": "vf"}, nil, `did you mean "functionType"`},
		"function_type":             {params{"policy": "p", "function_type": "vf"}, nil, `did you mean "functionType"`},
		"hotPlugFunction":           {params{"policy": "p", "hotPlugFunction": "true"}, nil, `did you mean "hotplugFunction"`},
		"hotplugFuntcion":           {params{"policy": "p", "hotplugFuntcion": "true"}, nil, `did you mean "hotplugFunction"`},
		"far enough: police state":  {params{"policy": "p", "policyGroup": "g"}, params{"policy": "p", "functionType": "vf", "hotplugFunction": "false", "policyGroup": "g"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Normalize(tc.in)
			if tc.words != "" {
				if !errors.Is(err, provisioner.ErrInvalid) || !strings.Contains(err.Error(), tc.words) {
					t.Errorf("error %v, want ErrInvalid with %s", err, tc.words)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"policy", "policy", 0}, {"polcy", "policy", 1}, {"kitten", "sitting", 3}} {
		if got := distance(tc.a, tc.b); got != tc.want {
			t.Errorf("%q %q: %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

func FuzzNormalize(f *testing.F) {
	f.Add("policy", "p", "functionType", "vf")
	f.Add("hotplugFunction", "1", "polcy", "")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		in := params{k1: v1, k2: v2, "policy": "p"}
		out, err := Normalize(in)
		if err != nil {
			if !errors.Is(err, provisioner.ErrInvalid) {
				t.Fatalf("%v is not ErrInvalid", err)
			}
			return
		}
		again, err := Normalize(out)
		if err != nil {
			t.Fatalf("%v was accepted, its own result %v is not: %v", in, out, err)
		}
		if d := cmp.Diff(out, again); d != "" {
			t.Fatalf("not stable: %s", d)
		}
	})
}

func TestFunctionOf(t *testing.T) {
	for _, tc := range []struct {
		context map[string]string
		want    storagev1alpha1.FunctionTypeConfig
		fault   bool
	}{
		{nil, storagev1alpha1.FunctionTypeConfig{FunctionType: "vf"}, false},
		{map[string]string{"functionType": "pf", "hotplugFunction": "true"}, storagev1alpha1.FunctionTypeConfig{FunctionType: "pf", HotplugFunction: true}, false},
		{map[string]string{"functionType": "vf", "hotplugFunction": "false"}, storagev1alpha1.FunctionTypeConfig{FunctionType: "vf"}, false},
		{map[string]string{"hotplugFunction": "perhaps"}, storagev1alpha1.FunctionTypeConfig{FunctionType: "vf"}, true},
	} {
		got, err := FunctionOf(tc.context)
		if got != tc.want || errors.Is(err, provisioner.ErrInvalid) != tc.fault || (err != nil) != tc.fault {
			t.Errorf("%v: got %+v, %v", tc.context, got, err)
		}
	}
}
