package pods

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// volumeModes and accessModes are those that there are.
var (
	volumeModes = []string{string(corev1.PersistentVolumeFilesystem), string(corev1.PersistentVolumeBlock)}
	accessModes = []string{string(corev1.ReadWriteOnce), string(corev1.ReadOnlyMany), string(corev1.ReadWriteMany), string(corev1.ReadWriteOncePod)}
)

// The modes where the provisioner says nothing.
var (
	defaultVolumeModes = volumeModes[:1]
	defaultAccessModes = accessModes[:3]
)

// listOf checks a list of such words.
func listOf(of []string) func(any) error {
	return func(v any) error {
		_, err := oneOf(v, of)
		return err
	}
}

// oneOf reads a list of such words; one at least.
func oneOf(v any, of []string) ([]string, error) {
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return nil, fmt.Errorf("has to be a list of %s", strings.Join(of, ", "))
	}
	out := make([]string, len(list))
	for i, item := range list {
		if out[i], ok = item.(string); !ok || !slices.Contains(of, out[i]) {
			return nil, fmt.Errorf("%v is none of %s", item, strings.Join(of, ", "))
		}
	}
	return out, nil
}

// capacityOf reads a capacity: a quantity as Kubernetes writes it, with white space around it or
// not, or a whole number of bytes. It has to be more than nothing.
func capacityOf(v any) (resource.Quantity, error) {
	var out resource.Quantity
	switch v := v.(type) {
	case string:
		q, err := resource.ParseQuantity(strings.TrimSpace(v))
		if err != nil {
			return out, fmt.Errorf("%q is no quantity such as 10Gi, nor a number of bytes", shortened(v))
		}
		out = q
	case int64:
		out = *resource.NewQuantity(v, resource.BinarySI)
	default:
		return out, fmt.Errorf("%v is no quantity such as 10Gi, nor a number of bytes", v)
	}
	if out.Sign() <= 0 {
		return out, errors.New("has to be more than 0")
	}
	if out.CmpInt64(math.MaxInt64) >= 0 {
		return out, errors.New("has to be less than 8Ei")
	}
	return out, nil
}

func quantity(v any) error {
	_, err := capacityOf(v)
	return err
}

// ceiling is a capacity in bytes, rounded up, and floor one rounded down.
func ceiling(v any) (int64, error) {
	q, err := capacityOf(v)
	return q.Value(), err
}

func floor(v any) (int64, error) {
	q, err := capacityOf(v)
	bytes := q.Value()
	if q.CmpInt64(bytes) < 0 {
		bytes--
	}
	return bytes, err
}

// handle checks the handle of a volume.
func handle(v any) error {
	if s, ok := v.(string); !ok || s == "" {
		return errors.New("has to be a string that is not empty")
	}
	return nil
}

// strangers are the keys of an object that are not among its fields.
func strangers(path *field.Path, object map[string]any, fields []string) field.ErrorList {
	var errs field.ErrorList
	for _, k := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(fields, k) {
			errs = append(errs, field.Forbidden(path.Child(k), "there is no such field; there are "+strings.Join(fields, ", ")))
		}
	}
	return errs
}
