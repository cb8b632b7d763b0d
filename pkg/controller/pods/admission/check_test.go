package admission

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// wants is a check that wants spec.color to be one of those given, and that fails on anything else.
func wants(colors ...string) Check {
	return func(object []byte) field.ErrorList {
		var o struct{ Spec struct{ Color string } }
		if err := json.Unmarshal(object, &o); err != nil {
			return field.ErrorList{field.Invalid(nil, string(object), err.Error())}
		}
		for _, c := range colors {
			if o.Spec.Color == c {
				return nil
			}
		}
		return field.ErrorList{
			field.NotSupported(field.NewPath("spec", "color"), o.Spec.Color, colors),
			field.Required(field.NewPath("spec", "shape"), "a color that is not known needs one"),
		}
	}
}

// ask sends a request as an API server does, and returns the answer.
func ask(t *testing.T, check Check, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	r.UID = "request"
	review := admissionv1.AdmissionReview{Request: r, TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}}
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	answer := send(t, check, body)
	if answer.UID != "request" {
		t.Errorf("the answer is for request %q", answer.UID)
	}
	return answer
}

func send(t *testing.T, check Check, body []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	(&webhook.Admission{Handler: check}).ServeHTTP(w, r)
	review := admissionv1.AdmissionReview{}
	if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil || review.Response == nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	return review.Response
}

// pavProvisioner is a request about one of that color; before is that of the object that is there.
func pavProvisioner(operation admissionv1.Operation, before, now string) *admissionv1.AdmissionRequest {
	object := func(color string) runtime.RawExtension {
		if color == "" {
			return runtime.RawExtension{}
		}
		return runtime.RawExtension{Raw: fmt.Appendf(nil, `{"metadata":{"name":"p","resourceVersion":"%d"},"spec":{"color":%q}}`, len(color), color)}
	}
	return &admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind{Group: judged.Group, Version: "v1alpha1", Kind: judged.Kind}, Name: "p",
		Operation: operation, OldObject: object(before), Object: object(now),
	}
}

func TestHandle(t *testing.T) {
	const refused = `PavProvisioner.pav.albertofaria.github.io "p" is invalid: [spec.color: Unsupported value: "sky": supported values: "red", ` +
		`spec.shape: Required value: a color that is not known needs one]`
	with := func(r *admissionv1.AdmissionRequest, change func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionRequest {
		change(r)
		return r
	}
	for name, tc := range map[string]struct {
		request *admissionv1.AdmissionRequest
		code    int32
		message string
	}{
		"made":                   {pavProvisioner(admissionv1.Create, "", "red"), 200, ""},
		"made wrong":             {pavProvisioner(admissionv1.Create, "", "sky"), 422, refused},
		"changed":                {pavProvisioner(admissionv1.Update, "sky", "red"), 200, ""},
		"changed to be wrong":    {pavProvisioner(admissionv1.Update, "red", "sky"), 422, refused},
		"wrong, and it stays":    {pavProvisioner(admissionv1.Update, "sky", "sky"), 200, ""},
		"wrong, and it goes":     {pavProvisioner(admissionv1.Delete, "sky", ""), 200, ""},
		"its status":             {with(pavProvisioner(admissionv1.Update, "red", "sky"), func(r *admissionv1.AdmissionRequest) { r.SubResource = "status" }), 200, ""},
		"changed from nothing":   {pavProvisioner(admissionv1.Update, "", "sky"), 422, refused},
		"an unknown operation":   {pavProvisioner("MAKE", "", "red"), 400, "CREATE and UPDATE, and not MAKE"},
		"a connection":           {pavProvisioner(admissionv1.Connect, "", "red"), 400, "and not CONNECT"},
		"another kind":           {with(pavProvisioner(admissionv1.Create, "", "red"), func(r *admissionv1.AdmissionRequest) { r.Kind.Kind = "Pod" }), 400, "and not Pod.pav.albertofaria.github.io: correct its rules"},
		"another group's kind":   {with(pavProvisioner(admissionv1.Create, "", "red"), func(r *admissionv1.AdmissionRequest) { r.Kind.Group = "x" }), 400, "correct its rules"},
		"no object":              {pavProvisioner(admissionv1.Create, "", ""), 422, "is invalid"},
		"text that is no object": {with(pavProvisioner(admissionv1.Create, "", "red"), func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(`"x"`) }), 422, "is invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, wants("red"), tc.request)
			if got.Allowed != (tc.code == 200) || got.Result.Code != tc.code || !strings.Contains(got.Result.Message, tc.message) {
				t.Errorf("allowed %v, code %d, message %q; want code %d, %q", got.Allowed, got.Result.Code, got.Result.Message, tc.code, tc.message)
			}
		})
	}
}

// TestCauses: clients that show errors by fields have them.
func TestCauses(t *testing.T) {
	got := ask(t, wants("red"), pavProvisioner(admissionv1.Create, "", "sky")).Result
	if got.Reason != metav1.StatusReasonInvalid || got.Details == nil || len(got.Details.Causes) != 2 ||
		got.Details.Causes[0].Field != "spec.color" || got.Details.Causes[1].Field != "spec.shape" {
		t.Errorf("%+v", got)
	}
}

// TestFailsClosed: what cannot be judged is refused, and the process goes on.
func TestFailsClosed(t *testing.T) {
	panics := Check(func([]byte) field.ErrorList { panic("a template is not compiled") })
	if got := ask(t, panics, pavProvisioner(admissionv1.Create, "", "red")); got.Allowed || got.Result.Code != 500 {
		t.Errorf("a check that panics: %+v", got)
	}
	for _, body := range []string{"", "{", `{"kind":"AdmissionReview"}`, strings.Repeat(" ", 8<<20)} {
		if got := send(t, wants("red"), []byte(body)); got.Allowed {
			t.Errorf("%.20q is allowed", body)
		}
	}
}
