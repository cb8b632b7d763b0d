package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

func claimOf(least, most string, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "1-2", Annotations: map[string]string{"crypt/secretName": "s", "crypt/underlyingClaimName": "u"}},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(least)}}},
	}
	if most != "" {
		c.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(most)}
	}
	return c
}

func classOf(parameters map[string]string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "sc"}, Provisioner: "p", Parameters: parameters}
}

func volumeOf(capacity string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "p", VolumeHandle: "h'1", VolumeAttributes: map[string]string{"k": "v"}}},
		},
	}
}

// claims answers get_pvc, and counts.
type claims struct{ asked int }

func (c *claims) Claim(_ context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	c.asked++
	if name != "under" {
		return nil, fmt.Errorf("PersistentVolumeClaim %s/%s does not exist", namespace, name)
	}
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"}}, nil
}

// dumper is a provisioner whose pods show all variables.
func dumper(t *testing.T) *Provisioner {
	t.Helper()
	const dump = `{% set yaml = true %}spec: {containers: [{name: c, env: [{name: X, value: %s}]}]}`
	names := []string{
		"requestedVolumeMode", "requestedAccessModes", "requestedMinCapacity", "requestedMaxCapacity", "params", "handle", "sc", "pvc", "pv", "node",
		"defaultHandle", "volumeMode", "accessModes", "capacity", "readOnly",
	}
	var text strings.Builder
	text.WriteString("{% set all = {")
	for _, n := range names {
		fmt.Fprintf(&text, "'%s': %s if %s is defined else 'absent', ", n, n, n)
	}
	text.WriteString("} %}{{ all | tojson | tojson }}")
	pod := strings.Replace(dump, "%s", text.String(), 1)
	return compiledOf(t, changed(t, "volumeValidation", map[string]any{"podTemplate": pod})).with(t, pod)
}

// with has the same pod in all phases.
func (p *Provisioner) with(t *testing.T, pod string) *Provisioner {
	t.Helper()
	tree, errs := grow(nil, pod)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, phase := range []Phase{Validation, Creation, Deletion, Staging, Unstaging} {
		p.templates[phase] = tree
	}
	return p
}

// TestContexts: each phase has its variables, of their types, and no others.
func TestContexts(t *testing.T) {
	p := dumper(t)
	pv, claim, node := volumeOf("1Gi"), claimOf("1Mi", "2Mi", corev1.ReadWriteOnce, corev1.ReadOnlyMany), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	_, dynamic, err := OfClaim(claim, classOf(map[string]string{"a": "b"}))
	if err != nil {
		t.Fatal(err)
	}
	static, fixed, err := OfVolume(pv)
	if err != nil {
		t.Fatal(err)
	}
	staging, err := OfStaging(pv, claim, node, true)
	if err != nil {
		t.Fatal(err)
	}
	kind := func(o any) any { m, _ := o.(map[string]any); return m["kind"] }
	requested := map[string]any{
		"requestedVolumeMode": "Filesystem", "requestedAccessModes": []any{"ReadWriteOnce", "ReadOnlyMany"}, "requestedMinCapacity": 1048576.0,
		"requestedMaxCapacity": 2097152.0, "params": map[string]any{"a": "b"}, "sc": "StorageClass", "pvc": "PersistentVolumeClaim", "defaultHandle": "pvc-1-2",
	}
	staged := map[string]any{
		"volumeMode": "Filesystem", "accessModes": []any{"ReadWriteOnce", "ReadOnlyMany"}, "capacity": 1073741824.0, "params": map[string]any{"k": "v"},
		"handle": "h'1", "readOnly": true, "pvc": "PersistentVolumeClaim", "pv": "PersistentVolume", "node": "Node",
	}
	for name, c := range map[string]struct {
		pod  func() (*corev1.PodTemplateSpec, error)
		want map[string]any
	}{
		"validation": {func() (*corev1.PodTemplateSpec, error) {
			return p.Validate(t.Context(), nil, Request{Mode: "Filesystem", MinBytes: 1}, dynamic)
		}, requested},
		"validation of a static volume": {func() (*corev1.PodTemplateSpec, error) { return p.Validate(t.Context(), nil, static, fixed) }, map[string]any{
			"requestedVolumeMode": "Filesystem", "requestedAccessModes": []any{"ReadWriteOnce"}, "requestedMinCapacity": 1073741824.0, "requestedMaxCapacity": 1073741824.0,
			"params": map[string]any{"k": "v"}, "handle": "h'1", "pv": "PersistentVolume",
		}},
		"creation": {func() (*corev1.PodTemplateSpec, error) {
			m, err := p.Create(t.Context(), nil, dynamic)
			return m.Pod, err
		}, requested},
		"deletion":  {func() (*corev1.PodTemplateSpec, error) { return p.Delete(t.Context(), nil, dynamic) }, requested},
		"staging":   {func() (*corev1.PodTemplateSpec, error) { return p.Stage(t.Context(), nil, staging) }, staged},
		"unstaging": {func() (*corev1.PodTemplateSpec, error) { return p.Unstage(t.Context(), nil, staging) }, staged},
	} {
		t.Run(name, func(t *testing.T) {
			pod, err := c.pod()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]any{}
			if err := json.Unmarshal([]byte(pod.Spec.Containers[0].Env[0].Value), &got); err != nil {
				t.Fatal(err)
			}
			maps.DeleteFunc(got, func(_ string, v any) bool { return v == "absent" })
			for _, object := range []string{"sc", "pvc", "pv", "node"} {
				if got[object] != nil {
					got[object] = kind(got[object])
				}
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%v\nwant %v", got, c.want)
			}
		})
	}
}

// TestRequests: a request is held against modes and bounds, and file systems and mount options are refused.
func TestRequests(t *testing.T) {
	bounded := func(low, high any) *Provisioner {
		return compiled(t, "volumeValidation", map[string]any{"minCapacity": low, "maxCapacity": high})
	}
	plain := compiled(t, "volumeValidation", nil)
	blocks := compiled(t, "volumeValidation", map[string]any{"volumeModes": []string{"{{ params.mode | default('Block') }}"}, "accessModes": []string{"ReadWriteOncePod"}})
	of := func(least int64, most *int64) Request {
		return Request{Mode: "Filesystem", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, MinBytes: least, MaxBytes: most}
	}
	for name, c := range map[string]struct {
		p    *Provisioner
		r    Request
		want string
	}{
		"P4 the default mode":          {plain, of(1, nil), ""},
		"P4 another mode":              {plain, Request{Mode: "Block", MinBytes: 1}, "supports volumeMode Filesystem, and Block is asked for"},
		"P4 by a template":             {blocks, Request{Mode: "Block", MinBytes: 1}, ""},
		"P4 not by a template":         {blocks, of(1, nil), "supports volumeMode Block, and Filesystem is asked for"},
		"P5 the default modes":         {plain, Request{Mode: "Filesystem", MinBytes: 1, AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"}}, ""},
		"P5 not by default":            {plain, Request{Mode: "Filesystem", MinBytes: 1, AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOncePod"}}, "supports accessModes ReadWriteOnce, ReadOnlyMany, ReadWriteMany, and ReadWriteOncePod is asked for"},
		"P5 one pod":                   {blocks, Request{Mode: "Block", MinBytes: 1, AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOncePod"}}, ""},
		"P5 one of two":                {blocks, Request{Mode: "Block", MinBytes: 1, AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOncePod", "ReadWriteOnce"}}, "ReadWriteOnce is asked for"},
		"P6 at most":                   {bounded(1, "1Ki"), of(1024, nil), ""},
		"P6 above":                     {bounded(1, "1Ki"), of(1025, nil), "at most 1024 bytes, and 1025 are asked for"},
		"P6 at least":                  {bounded("1Ki", "2Ki"), of(1, ptr.To[int64](1024)), ""},
		"P6 below":                     {bounded("1Ki", "2Ki"), of(1, ptr.To[int64](1023)), "at least 1024 bytes, and at most 1023 are asked for"},
		"P6 no limit":                  {bounded("1Ki", "2Ki"), of(1, nil), ""},
		"P6 the least is rounded down": {bounded("1500m", "2"), of(1, ptr.To[int64](1)), ""},
		"P6 the most is rounded up":    {bounded(1, "1500m"), of(2, nil), ""},
		"P6 nothing between":           {bounded("{{ 2 }}", "{{ 1 }}"), of(1, nil), "spec.volumeValidation.minCapacity is 2 and spec.volumeValidation.maxCapacity is 1"},
		"P6 a bound that is none":      {bounded("{{ params.x | default('ten') }}", 11), of(1, nil), `spec.volumeValidation.minCapacity: "ten" is no quantity`},
		"P6 nothing is asked for":      {plain, of(0, nil), "more than 0"},
		"P6 limit below request":       {plain, of(2, ptr.To[int64](1)), "at least 2 and at most 1 bytes"},
		"P33 a file system":            {plain, Request{Mode: "Filesystem", MinBytes: 1, FSType: "ext4"}, "csi.storage.k8s.io/fstype is not for it"},
		"P33 mount options":            {plain, Request{Mode: "Filesystem", MinBytes: 1, MountOptions: []string{"ro"}}, "mountOptions are not for it"},
		"a variable that is not there": {bounded("{{ pv.spec.x }}", 11), of(1, nil), "spec.volumeValidation.minCapacity: line 1: 'pv' is undefined"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.p.Validate(t.Context(), nil, c.r, Context{map[string]any{"params": map[string]any{}}})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			var refused *Refused
			if err != nil && strings.Contains(c.want, "asked for") && !errors.As(err, &refused) {
				t.Errorf("%v is no refusal", err)
			}
		})
	}
}

// TestResolve: a file goes before the field, and the field before the default.
func TestResolve(t *testing.T) {
	r := Request{MinBytes: 10, MaxBytes: ptr.To[int64](1 << 30)}
	file := func(handle, capacity string) *moorv1alpha1.PodReport {
		out := &moorv1alpha1.PodReport{}
		if handle != "-" {
			out.Handle = &handle
		}
		if capacity != "-" {
			out.Capacity = &capacity
		}
		return out
	}
	for name, c := range map[string]struct {
		made   Made
		report *moorv1alpha1.PodReport
		handle string
		bytes  int64
		err    string
	}{
		"P10 the default":               {Made{CapacityBytes: ptr.To[int64](10)}, nil, "default", 10, ""},
		"P10 the field":                 {Made{Handle: ptr.To("f"), CapacityBytes: ptr.To[int64](10)}, file("-", "-"), "f", 10, ""},
		"P10 the file":                  {Made{CapacityBytes: ptr.To[int64](10)}, file("x", "-"), "x", 10, ""},
		"P10 the file before the field": {Made{Handle: ptr.To("f"), CapacityBytes: ptr.To[int64](10)}, file("x", "-"), "x", 10, ""},
		"P10 an empty file":             {Made{Handle: ptr.To("f"), CapacityBytes: ptr.To[int64](10)}, file("", "-"), "", 0, "empty /pav/handle"},
		"P11 the file before the field": {Made{CapacityBytes: ptr.To[int64](10)}, file("-", "1Ki"), "default", 1024, ""},
		"P11 with a newline":            {Made{}, file("-", "1Ki\n"), "default", 1024, ""},
		"P11 in bytes, with a newline":  {Made{}, file("-", "1048576\n"), "default", 1 << 20, ""},
		"P11 neither":                   {Made{}, file("-", "-"), "", 0, "no /pav/capacity, and spec.volumeCreation.capacity is not set"},
		"P11 no capacity":               {Made{CapacityBytes: ptr.To[int64](10)}, file("-", "much"), "", 0, "cannot be used"},
		"P11 an empty one":              {Made{}, file("-", ""), "", 0, "cannot be used"},
		"less than asked for":           {Made{CapacityBytes: ptr.To[int64](9)}, nil, "", 0, "at least 10 are asked for"},
		"more than asked for":           {Made{}, file("-", "2Gi"), "", 0, "at most 1073741824 are asked for"},
	} {
		t.Run(name, func(t *testing.T) {
			handle, bytes, err := c.made.Resolve(r, c.report, "default")
			if handle != c.handle || bytes != c.bytes || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q, %d, %v", handle, bytes, err)
			}
		})
	}
}

// TestFields: every string is a template, keys are none, the result is not evaluated again, and one
// that sets yaml stands for a value of any type.
func TestFields(t *testing.T) {
	for field, want := range map[string]any{
		`"a{{ 1 + 1 }}"`: "a2",
		`"line\n"`:       "line",
		`{"{{ k }}": ["{{ x }}", 3, true, null]}`:                  map[string]any{"{{ k }}": []any{"X", int64(3), true, nil}},
		`"{{ '{{ x }}' }}"`:                                        "{{ x }}",
		`"{% set yaml = true %}{{ 3 }}"`:                           int64(3),
		`"{% set yaml = true %}"`:                                  nil,
		`"{% set yaml = true %}[a, {b: {{ x | tojson }} }]"`:       []any{"a", map[string]any{"b": "X"}},
		`"{% set yaml = false %}3"`:                                "3",
		`"{% set yaml = 1 %}3"`:                                    errors.New("the variable yaml has to be true or false, and is 1"),
		`"{% set yaml = true %}[a"`:                                errors.New("the result is no YAML"),
		`"{{ get_pvc('under', 'ns').spec.volumeName }}"`:           "pv-1",
		`"{{ get_pvc(namespace='ns', name='under').kind }}"`:       "PersistentVolumeClaim",
		`"{{ get_pvc('other', 'ns') }}"`:                           errors.New("PersistentVolumeClaim ns/other does not exist"),
		`"{{ get_pvc('under') }}"`:                                 errors.New("a name and a namespace"),
		`"{{ get_pvc('under', 3) }}"`:                              errors.New("have to be strings"),
		`"{{ get_pvc('under', 'ns', 'x') }}"`:                      errors.New("a name and a namespace"),
		`"{% set yaml = true %}{{ get_pvc('under', 'ns').kind }}"`: "PersistentVolumeClaim",
		`["{{ nope }}"]`:                                           errors.New("spec.x[0]: line 1: 'nope' is undefined"),
	} {
		t.Run(field, func(t *testing.T) {
			var v any
			if err := json.Unmarshal([]byte(field), &v); err != nil {
				t.Fatal(err)
			}
			tree, errs := grow(specX, exact(v))
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			c := &claims{}
			got, err := evaluation{t.Context(), c, Context{map[string]any{"x": "X", "k": "K"}}}.of(tree)
			if wanted, ok := want.(error); ok {
				if err == nil || !strings.Contains(err.Error(), wanted.Error()) {
					t.Errorf("%v, %v, want %v", got, err, wanted)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, want) || c.asked > 1 {
				t.Errorf("%#v, %v after %d questions, want %#v", got, err, c.asked, want)
			}
		})
	}
}

// TestExamplesRun: every template of the examples gives a pod, with the values in it.
func TestExamplesRun(t *testing.T) {
	params := map[string]string{"projectId": "p-1", "secretName": "key", "secretNamespace": "keys", "location": "it's"}
	_, dynamic, err := OfClaim(claimOf("1Gi", "", corev1.ReadWriteOnce), classOf(params))
	if err != nil {
		t.Fatal(err)
	}
	pv := volumeOf("1Gi")
	pv.Spec.CSI.VolumeAttributes = params
	staging, err := OfStaging(pv, claimOf("1Gi", "", corev1.ReadWriteMany), &corev1.Node{}, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range examples {
		p := compiledOf(t, example(t, name))
		made, err := p.Create(t.Context(), nil, dynamic)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var all []*corev1.PodTemplateSpec
		for _, pod := range []func(context.Context, Claims, Context) (*corev1.PodTemplateSpec, error){p.Stage, p.Unstage, p.Delete} {
			context := staging
			if len(all) == 2 {
				context = dynamic
			}
			one, err := pod(t.Context(), nil, context)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			all = append(all, one)
		}
		switch name {
		case "1-hello-world":
			if made.Pod != nil || *made.CapacityBytes != 1<<30 || all[1] != nil || all[2] != nil {
				t.Errorf("%s: %+v", name, made)
			}
		case "2-google-cloud-storage":
			command := made.Pod.Spec.Containers[0].Command[2]
			if made.Pod.Namespace != "keys" || *made.CapacityBytes != 1<<60 || !strings.Contains(command, `-l 'it'"'"'s' \`) || strings.Contains(command, "retention") || !strings.Contains(all[0].Spec.Containers[0].Command[2], "--stat-cache-ttl 0 ") {
				t.Errorf("%s: %s", name, command)
			}
		case "3-transparent-encryption":
			if made.Handle != nil || made.CapacityBytes != nil || made.Pod.Spec.Volumes[0].Secret.SecretName != "s" || !strings.Contains(all[1].Spec.Containers[0].Args[0], `close 'h'"'"'1'`) {
				t.Errorf("%s: %+v", name, made.Pod)
			}
		}
	}
}

// specX is the path of the fields of tests.
var specX = field.NewPath("spec", "x")

// exact makes whole numbers of those that JSON reads as floats.
func exact(v any) any {
	switch v := v.(type) {
	case float64:
		return int64(v)
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = exact(v[k])
		}
	}
	return v
}

// BenchmarkStaging evaluates the largest template of the examples.
func BenchmarkStaging(b *testing.B) {
	p := compiledOf(b, example(b, "2-google-cloud-storage"))
	context, err := OfStaging(volumeOf("1Gi"), claimOf("1Gi", "", corev1.ReadWriteMany), &corev1.Node{}, false)
	if err != nil {
		b.Fatal(err)
	}
	context.variables["params"] = map[string]any{"secretNamespace": "n", "secretName": "s"}
	for b.Loop() {
		if _, err := p.Stage(b.Context(), nil, context); err != nil {
			b.Fatal(err)
		}
	}
}
