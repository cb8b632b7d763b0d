package endpoint

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/moor-storage/moor/pkg/node/pods/pavdir"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

func TestNameIsOfAllParts(t *testing.T) {
	seen := map[string]string{}
	for what, name := range map[string]string{
		"it": Name("d", "h", "n", "u"), "driver": Name("e", "h", "n", "u"), "handle": Name("d", "i", "n", "u"),
		"node": Name("d", "h", "m", "u"), "pod": Name("d", "h", "n", "v"), "shifted": Name("d", "h\" \"n", "", "u"),
	} {
		if other, is := seen[name]; is {
			t.Errorf("%s and %s have one name", what, other)
		}
		seen[name] = what
	}
	if Name("d", "h", "n", "u") != Name("d", "h", "n", "u") {
		t.Error("it has two names")
	}
}

func FuzzName(f *testing.F) {
	f.Add("crypt", "a/handle", "n1", "uid")
	f.Add("", "\x00\xff", "..", "/")
	f.Fuzz(func(t *testing.T, driver, handle, node, pod string) {
		name := Name(driver, handle, node, types.UID(pod))
		if errs := validation.IsDNS1123Label(name); len(errs) > 0 || pavdir.CheckName(name) != nil {
			t.Errorf("%q: %v", name, errs)
		}
		id := name[len(pods.StagingName("")):]
		if n := len(pods.StagingPodName(pods.Unstaging, id)); n > validation.DNS1123LabelMaxLength {
			t.Errorf("the name of a pod has %d characters", n)
		}
	})
}
