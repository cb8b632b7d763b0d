package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
)

// judged is the kind that the webhook judges.
var judged = schema.GroupKind{Group: pavv1alpha1.GroupVersion.Group, Kind: "PavProvisioner"}

// Check says what is wrong with a PavProvisioner, which is JSON as it was sent. It has no side effects.
type Check func(object []byte) field.ErrorList

// Handle refuses a PavProvisioner that is made or changed and is wrong, with all that is wrong in
// the answer. What does not write the spec passes: an object that became wrong, because the
// check is stricter by now, can still get labels, be released from its finalizer and deleted.
func (c Check) Handle(_ context.Context, r admission.Request) admission.Response {
	if r.Operation == admissionv1.Delete || r.SubResource != "" {
		return admission.Allowed("")
	}
	if r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("this webhook judges the operations CREATE and UPDATE, and not %s: correct its rules", r.Operation))
	}
	if kind := (schema.GroupKind{Group: r.Kind.Group, Kind: r.Kind.Kind}); kind != judged {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("this webhook judges %s, and not %s: correct its rules", judged, kind))
	}
	if r.Operation == admissionv1.Update && sameSpec(r.OldObject.Raw, r.Object.Raw) {
		return admission.Allowed("")
	}
	if errs := c(r.Object.Raw); len(errs) > 0 {
		return refuse(r.Name, errs)
	}
	return admission.Allowed("")
}

// refuse is the answer of the API server's own validation: 422, with all errors in the message and
// the path of each among the causes.
func refuse(name string, errs field.ErrorList) admission.Response {
	status := apierrors.NewInvalid(judged, name, errs).Status()
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &status}}
}

// sameSpec reports whether two objects have one spec. What cannot be read is not the same.
func sameSpec(before, now []byte) bool {
	var a, b struct {
		Spec any `json:"spec"`
	}
	if json.Unmarshal(before, &a) != nil || json.Unmarshal(now, &b) != nil || a.Spec == nil {
		return false
	}
	return reflect.DeepEqual(a.Spec, b.Spec)
}
