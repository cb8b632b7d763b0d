package kube

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsNotFound reports whether an API server has said that an object does not exist. A
// 404 that does not speak of the object says nothing about it: the server does not serve
// the kind, because its CRD is gone or not established yet, or something else answers at
// this address. (apierrors.IsNotFound takes both for the same.)
func IsNotFound(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// IgnoreNotFound is the error, unless the API server says that the object does not exist.
func IgnoreNotFound(err error) error {
	if IsNotFound(err) {
		return nil
	}
	return err
}
