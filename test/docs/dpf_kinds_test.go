package docs

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kinds of DPF (svc.dpu.nvidia.com/v1alpha1) that the examples have, with the fields that
// DPF 26.x has of them. Moor reads none of them, so they are here only.
type (
	dpuServiceTemplate struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			DeploymentServiceName string              `json:"deploymentServiceName"`
			HelmChart             dpfChart            `json:"helmChart"`
			ResourceRequirements  corev1.ResourceList `json:"resourceRequirements"`
			Security              *struct {
				Privileged *bool `json:"privileged"`
			} `json:"security"`
		} `json:"spec"`
	}
	dpfChart struct {
		Source struct {
			RepoURL     string `json:"repoURL"`
			Path        string `json:"path"`
			Version     string `json:"version"`
			Chart       string `json:"chart"`
			ReleaseName string `json:"releaseName"`
		} `json:"source"`
		Values map[string]any `json:"values"`
	}
	dpuServiceConfiguration struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			DeploymentServiceName string `json:"deploymentServiceName"`
			ServiceConfiguration  struct {
				DeployInCluster bool `json:"deployInCluster"`
				HelmChart       struct {
					Values map[string]any `json:"values"`
				} `json:"helmChart"`
				ServiceDaemonSet struct {
					Labels      map[string]string   `json:"labels"`
					Annotations map[string]string   `json:"annotations"`
					Resources   corev1.ResourceList `json:"resources"`
				} `json:"serviceDaemonSet"`
			} `json:"serviceConfiguration"`
			Interfaces []struct {
				Name    string `json:"name"`
				Network string `json:"network"`
			} `json:"interfaces"`
			UpgradePolicy struct {
				ApplyNodeEffect *bool `json:"applyNodeEffect"`
			} `json:"upgradePolicy"`
		} `json:"spec"`
	}
	dpuDeployment struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			DPUs struct {
				BFB        string `json:"bfb"`
				Flavor     string `json:"flavor"`
				NodeEffect struct {
					Drain *bool `json:"drain"`
					Hold  *bool `json:"hold"`
				} `json:"nodeEffect"`
				DPUSetStrategy struct {
					Type string `json:"type"`
				} `json:"dpuSetStrategy"`
				DPUSets []struct {
					NameSuffix      string                `json:"nameSuffix"`
					DPUNodeSelector *metav1.LabelSelector `json:"dpuNodeSelector"`
					DPUAnnotations  map[string]string     `json:"dpuAnnotations"`
				} `json:"dpuSets"`
			} `json:"dpus"`
			Services map[string]struct {
				ServiceTemplate      string `json:"serviceTemplate"`
				ServiceConfiguration string `json:"serviceConfiguration"`
			} `json:"services"`
			ServiceChains struct {
				Switches []struct {
					Ports []dpfPort `json:"ports"`
				} `json:"switches"`
			} `json:"serviceChains"`
		} `json:"spec"`
	}
	dpfPort struct {
		ServiceInterface *metav1.LabelSelector `json:"serviceInterface"`
		Service          *struct {
			Name      string                `json:"name"`
			Interface string                `json:"interface"`
			IPAM      *metav1.LabelSelector `json:"ipam"`
		} `json:"service"`
	}
	dpuServiceCredentialRequest struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			ServiceAccount dpfName  `json:"serviceAccount"`
			TargetCluster  *dpfName `json:"targetCluster"`
			Type           string   `json:"type"`
			Secret         dpfName  `json:"secret"`
			Duration       string   `json:"duration"`
		} `json:"spec"`
	}
	dpfName struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	}
)
