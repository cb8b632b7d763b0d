package pods

import (
	"fmt"
	"regexp"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
)

// Check says what is wrong with a PavProvisioner as it was sent: object is the JSON of all of it. Fields
// that do not exist are found here, which the API server keeps where values of any type can stand.
func Check(object []byte) field.ErrorList {
	var all map[string]any
	if err := utiljson.Unmarshal(object, &all); err != nil {
		return field.ErrorList{field.Invalid(nil, field.OmitValueType{}, "the object is no JSON: "+err.Error())}
	}
	errs, wrong := unknown(all), durations(all)
	p := &pavv1alpha1.PavProvisioner{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(object, p); err != nil {
		if len(wrong) == 0 {
			wrong = field.ErrorList{mistyped(err)}
		}
		return append(errs, wrong...)
	}
	_, more := Compile(p)
	return append(errs, more...)
}

// known are the fields beneath spec, but for what is within pod templates and values.
var known = map[string][]string{
	"":                 {"provisioningModes", "volumeValidation", "volumeCreation", "volumeDeletion", "volumeStaging", "volumeUnstaging", "volumeRevocation"},
	"volumeValidation": {"volumeModes", "accessModes", "minCapacity", "maxCapacity", "podTemplate", "timeout"},
	"volumeCreation":   {"handle", "capacity", "podTemplate", "timeout"},
	"volumeDeletion":   {"podTemplate", "timeout"},
	"volumeStaging":    {"podTemplate", "timeout", "nodeSelector"},
	"volumeUnstaging":  {"podTemplate", "timeout"},
	"volumeRevocation": {"podTemplate", "timeout"},
}

func unknown(object map[string]any) field.ErrorList {
	spec, _ := object["spec"].(map[string]any)
	path := field.NewPath("spec")
	errs := strangers(path, spec, known[""])
	for _, part := range known[""] {
		within, _ := spec[part].(map[string]any)
		errs = append(errs, strangers(path.Child(part), within, known[part])...)
	}
	return errs
}

// durations finds timeouts that are none: the decoder does not say where they are.
func durations(object map[string]any) (errs field.ErrorList) {
	spec, _ := object["spec"].(map[string]any)
	for _, part := range known[""] {
		within, _ := spec[part].(map[string]any)
		text, ok := within["timeout"].(string)
		if _, err := time.ParseDuration(text); ok && err != nil {
			errs = append(errs, field.Invalid(field.NewPath("spec", part, "timeout"), text, "is no duration, such as 90s or 5m"))
		}
	}
	return errs
}

// mistypedField finds the field in an error of the JSON decoder.
var mistypedField = regexp.MustCompile(`Go struct field \S*?\.(spec\S*) of type (\S+)`)

// mistyped is an error of the decoder in the words of the API.
func mistyped(err error) *field.Error {
	if m := mistypedField.FindStringSubmatch(err.Error()); m != nil {
		return field.Invalid(field.NewPath(m[1]), field.OmitValueType{}, "is of another type")
	}
	return field.Invalid(field.NewPath("spec"), field.OmitValueType{}, fmt.Sprintf("cannot be read: %v", err))
}
