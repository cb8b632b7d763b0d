package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// NewScheme returns a scheme of the kinds that the functions given register.
func NewScheme(add ...func(*runtime.Scheme) error) (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, register := range add {
		if err := register(s); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	return s, nil
}
