package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BMC is where the power of a machine is switched, and which machine that is.
type BMC struct {
	// Address of the Redfish service: https://host or https://host:port.
	// +kubebuilder:validation:Pattern=`^https://[^/@]+$`
	Address string `json:"address"`
	// SystemID is the id of the machine in Redfish's collection of systems, or a part of it.
	// Empty: the only system, or the one with the serial number.
	// +optional
	SystemID string `json:"systemID,omitempty"`
	// SerialNumber of the system, as Redfish tells it: nothing is done to any other, and
	// nothing that is read of another counts.
	// +kubebuilder:validation:MinLength=1
	SerialNumber string `json:"serialNumber"`
	// UUID of the system. Empty: it is not compared.
	// +optional
	UUID string `json:"uuid,omitempty"`
	// SecretName is a Secret of the same namespace with the keys username and password, and
	// perhaps ca.crt, by which the BMC's certificate is checked, and tls.crt and tls.key, if the
	// BMC asks for a certificate.
	// +kubebuilder:validation:MinLength=1
	SecretName string `json:"secretName"`
	// InsecureSkipVerify: the BMC's certificate is not checked. Then what stands between can
	// read the password, and answer for the BMC.
	// +optional
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

// DPUDeviceBMC is the BMC of a DPU that DPF knows.
type DPUDeviceBMC struct {
	// Name of the DPUDevice, in the same namespace: it has the address and the serial
	// number, and DPF's Secrets the password and the certificates.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Username that goes with DPF's password: root for BlueField-3, admin for BlueField-4.
	// +kubebuilder:default=root
	// +optional
	Username string `json:"username,omitempty"`
}

// DPUPowerSource is where a DPU has its power from.
// +kubebuilder:validation:Enum=Own;Host
type DPUPowerSource string

// The sources of a DPU's power.
const (
	// DPUPowerOwn: the DPU may run on while its host is off.
	DPUPowerOwn DPUPowerSource = "Own"
	// DPUPowerHost: the DPU has no power while its host is off.
	DPUPowerHost DPUPowerSource = "Host"
)

// PowerOnPolicy says when a host is switched on again that was switched off for a failover.
// +kubebuilder:validation:Enum=Manual;Released
type PowerOnPolicy string

// The policies of switching on again.
const (
	// PowerOnManual: by a person.
	PowerOnManual PowerOnPolicy = "Manual"
	// PowerOnReleased: once no right to write is being taken from the host any more, and its
	// pods are released.
	PowerOnReleased PowerOnPolicy = "Released"
)

// PowerControlSpec says how the power of a host and of its DPU is reached.
// +kubebuilder:validation:XValidation:rule="!has(self.dpu) || !has(self.dpuDevice)",message="dpu and dpuDevice name the same BMC: one of them is enough"
type PowerControlSpec struct {
	// Host is the BMC of the host. It is switched off for a failover if the host is taken for
	// dead, or its failover was requested.
	// +optional
	Host *BMC `json:"host,omitempty"`
	// DPU is the BMC of the DPU in the host. The DPU is reset for a failover if it is silent.
	// +optional
	DPU *BMC `json:"dpu,omitempty"`
	// DPUDevice is the same, where DPF knows it.
	// +optional
	DPUDevice *DPUDeviceBMC `json:"dpuDevice,omitempty"`
	// DPUPower is where the DPU has its power from. Only with Host does it prove something
	// of the DPU that its host is off. Measure it on this kind of machine: a card may have a
	// connector of its own, or run on standby power.
	// +kubebuilder:default=Own
	// +optional
	DPUPower DPUPowerSource `json:"dpuPower,omitempty"`
	// PowerOn says when a host that was switched off is switched on again.
	// +kubebuilder:default=Manual
	// +optional
	PowerOn PowerOnPolicy `json:"powerOn,omitempty"`
}

// PowerControlStatus is what was asked of the BMCs. Each is written before it is asked for.
// Writer: snap-host-controller.
type PowerControlStatus struct {
	// HostOff is when the host's BMC was asked first to switch the host off. Absent: it was
	// not, or the host has been seen on since it was given back.
	// +optional
	HostOff *metav1.Time `json:"hostOff,omitempty"`
	// DPUReset is when the DPU's BMC was asked last to reset the DPU.
	// +optional
	DPUReset *metav1.Time `json:"dpuReset,omitempty"`
}

// PowerControl says how the power of a host, and of the DPU in it, is reached. Its name is
// that of the host's DPUStorageNode. Writer of spec: the installer.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="Host BMC",type=string,JSONPath=`.spec.host.address`
// +kubebuilder:printcolumn:name="DPU BMC",type=string,JSONPath=`.spec.dpu.address`
// +kubebuilder:printcolumn:name="DPU Device",type=string,JSONPath=`.spec.dpuDevice.name`
// +kubebuilder:printcolumn:name="Host Off",type=date,JSONPath=`.status.hostOff`
// +kubebuilder:printcolumn:name="DPU Reset",type=date,JSONPath=`.status.dpuReset`
type PowerControl struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PowerControlSpec   `json:"spec,omitempty"`
	Status PowerControlStatus `json:"status,omitempty"`
}

// PowerControlList is a list of PowerControls.
// +kubebuilder:object:root=true
type PowerControlList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PowerControl `json:"items"`
}
