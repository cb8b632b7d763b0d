// Package v1alpha1 holds PavProvisioner, a volume provisioner that is written as templates of
// pods. Group, version and fields are those of PaV 0.1 (Pods-as-Volumes), so that its users'
// objects apply unchanged; what Moor adds is optional and says so.
//
// +kubebuilder:object:generate=true
// +groupName=pav.albertofaria.github.io
package v1alpha1
