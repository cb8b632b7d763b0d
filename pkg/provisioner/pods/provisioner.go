package pods

import (
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
)

// Phase is a part of the life of a volume that a pod works for.
type Phase string

// The phases. The pods of all but Staging run to their end.
const (
	Validation Phase = "validation"
	Creation   Phase = "creation"
	Deletion   Phase = "deletion"
	Staging    Phase = "staging"
	Unstaging  Phase = "unstaging"
	Revocation Phase = "revocation"
)

// DefaultTimeout is how long a pod may need where the provisioner says nothing: the pull of a large
// image is in it.
const DefaultTimeout = 5 * time.Minute

// Provisioner is a compiled PavProvisioner. It does not change, and can be used by several
// goroutines at once.
type Provisioner struct {
	name         string
	modes        []pavv1alpha1.ProvisioningMode
	nodeSelector map[string]string
	timeouts     map[Phase]time.Duration
	templates    map[Phase]*tree
	// revokes is a hash of the revocation pod's template as it is written; empty: there is none.
	revokes string

	volumeModes, accessModes, minCapacity, maxCapacity *tree
	handle, capacity                                   *tree
}

// Name is the name of the provisioner, and of its CSI driver.
func (p *Provisioner) Name() string { return p.name }

// Provides reports whether volumes can come to be in this way.
func (p *Provisioner) Provides(mode pavv1alpha1.ProvisioningMode) bool {
	return slices.Contains(p.modes, mode)
}

// NodeSelector is which labels a node has to have to stage volumes; empty: none. It must not be
// changed.
func (p *Provisioner) NodeSelector() map[string]string { return p.nodeSelector }

// StagesOn reports whether a node with these labels may stage volumes.
func (p *Provisioner) StagesOn(of map[string]string) bool {
	return StagesOn(p.nodeSelector, of)
}

// StagesOn reports whether a volumeStaging.nodeSelector lets a node with these labels stage.
func StagesOn(selector, of map[string]string) bool {
	return labels.SelectorFromSet(selector).Matches(labels.Set(of))
}

// Timeout is how long the pod of a phase may need.
func (p *Provisioner) Timeout(phase Phase) time.Duration {
	if d, ok := p.timeouts[phase]; ok {
		return d
	}
	return DefaultTimeout
}

// Revokes is a hash of the template of the revocation pod, by which one is known to have been made of what is
// written there now; empty: there is none, and the storage gives no receipt.
func (p *Provisioner) Revokes() string { return p.revokes }

// Compile compiles the templates of a PavProvisioner, and looks at all that can be known before they are
// rendered. Each error has the path of the field that it speaks of.
func Compile(p *pavv1alpha1.PavProvisioner) (*Provisioner, field.ErrorList) {
	c := compiler{spec: field.NewPath("spec"), out: &Provisioner{
		name: p.Name, modes: p.Spec.ProvisioningModes, nodeSelector: p.Spec.VolumeStaging.NodeSelector,
		timeouts: map[Phase]time.Duration{}, templates: map[Phase]*tree{},
	}}
	c.compile(&p.Spec)
	if len(c.errs) > 0 {
		return nil, c.errs
	}
	return c.out, nil
}

// compiler is one run of Compile.
type compiler struct {
	spec *field.Path
	out  *Provisioner
	errs field.ErrorList
}

func (c *compiler) compile(s *pavv1alpha1.PavProvisionerSpec) {
	c.provisioning(s)
	if v := s.VolumeValidation; v != nil {
		path := c.spec.Child("volumeValidation")
		c.out.volumeModes = c.field(path.Child("volumeModes"), v.VolumeModes, listOf(volumeModes))
		c.out.accessModes = c.field(path.Child("accessModes"), v.AccessModes, listOf(accessModes))
		c.out.minCapacity = c.field(path.Child("minCapacity"), v.MinCapacity, quantity)
		c.out.maxCapacity = c.field(path.Child("maxCapacity"), v.MaxCapacity, quantity)
		c.bounds()
		c.phase(Validation, path, v.PodTemplate, v.Timeout)
	}
	if v := s.VolumeCreation; v != nil {
		path := c.spec.Child("volumeCreation")
		c.out.handle = c.field(path.Child("handle"), v.Handle, handle)
		c.out.capacity = c.field(path.Child("capacity"), v.Capacity, quantity)
		c.phase(Creation, path, v.PodTemplate, v.Timeout)
	}
	if v := s.VolumeDeletion; v != nil {
		c.phase(Deletion, c.spec.Child("volumeDeletion"), v.PodTemplate, v.Timeout)
	}
	staging := c.spec.Child("volumeStaging")
	if s.VolumeStaging.PodTemplate == nil {
		c.errs = append(c.errs, field.Required(staging.Child("podTemplate"), "without it no volume is made available"))
	}
	c.phase(Staging, staging, s.VolumeStaging.PodTemplate, s.VolumeStaging.Timeout)
	if v := s.VolumeUnstaging; v != nil {
		c.phase(Unstaging, c.spec.Child("volumeUnstaging"), v.PodTemplate, v.Timeout)
	}
	if v := s.VolumeRevocation; v != nil {
		path := c.spec.Child("volumeRevocation")
		if v.PodTemplate == nil {
			c.errs = append(c.errs, field.Required(path.Child("podTemplate"), "without it nothing is revoked: leave volumeRevocation out"))
		}
		c.phase(Revocation, path, v.PodTemplate, v.Timeout)
		c.out.revokes = digest(v.PodTemplate)
	}
	if c.out.Provides(pavv1alpha1.Dynamic) && c.out.capacity == nil && c.out.templates[Creation] == nil {
		c.errs = append(c.errs, field.Required(c.spec.Child("volumeCreation", "capacity"), "without a creation pod nothing else says how large a volume is"))
	}
}

func (c *compiler) provisioning(s *pavv1alpha1.PavProvisionerSpec) {
	path := c.spec.Child("provisioningModes")
	if len(s.ProvisioningModes) == 0 {
		c.errs = append(c.errs, field.Required(path, "Dynamic, Static or both"))
	}
	for i, m := range s.ProvisioningModes {
		if m != pavv1alpha1.Dynamic && m != pavv1alpha1.Static {
			c.errs = append(c.errs, field.NotSupported(path.Index(i), m, []pavv1alpha1.ProvisioningMode{pavv1alpha1.Dynamic, pavv1alpha1.Static}))
		}
	}
	if c.out.Provides(pavv1alpha1.Dynamic) {
		return
	}
	for name, there := range map[string]bool{"volumeCreation": s.VolumeCreation != nil, "volumeDeletion": s.VolumeDeletion != nil} {
		if there {
			c.errs = append(c.errs, field.Forbidden(c.spec.Child(name), "is for provisioningModes with Dynamic"))
		}
	}
}

// field compiles one field, and checks its value if no template is in it.
func (c *compiler) field(path *field.Path, raw *apiextensionsv1.JSON, check func(any) error) *tree {
	t, errs := compile(path, raw)
	c.errs = append(c.errs, errs...)
	if t == nil || len(errs) > 0 {
		return t
	}
	if t.plain {
		if err := check(t.value()); err != nil {
			c.errs = append(c.errs, field.Invalid(path, t.value(), err.Error()))
		}
		return t
	}
	for _, item := range t.list { // of a list the elements that are no templates can be looked at
		if item.plain {
			if err := check([]any{item.value()}); err != nil {
				c.errs = append(c.errs, field.Invalid(item.path, item.value(), err.Error()))
			}
		}
	}
	return t
}

// value is that of a tree without templates.
func (t *tree) value() any {
	switch {
	case t.list != nil:
		out := make([]any, len(t.list))
		for i, child := range t.list {
			out[i] = child.value()
		}
		return out
	case t.object != nil:
		out := map[string]any{}
		for k, child := range t.object {
			out[k] = child.value()
		}
		return out
	}
	return t.literal
}

// bounds compares the two bounds of the capacity, where both are known.
func (c *compiler) bounds() {
	low, high := c.out.minCapacity, c.out.maxCapacity
	if low == nil || high == nil || !low.plain || !high.plain {
		return
	}
	least, err := floor(low.value())
	if err != nil {
		return // said already
	}
	if most, err := ceiling(high.value()); err == nil && least > most {
		c.errs = append(c.errs, field.Invalid(low.path, low.value(), "is more than maxCapacity"))
	}
}

func (c *compiler) phase(phase Phase, path *field.Path, raw *apiextensionsv1.JSON, timeout *metav1.Duration) {
	if timeout != nil {
		if timeout.Duration <= 0 {
			c.errs = append(c.errs, field.Invalid(path.Child("timeout"), timeout.Duration.String(), "has to be longer than nothing"))
		}
		c.out.timeouts[phase] = timeout.Duration
	}
	t, errs := compile(path.Child("podTemplate"), raw)
	c.errs = append(c.errs, errs...)
	if t == nil || len(errs) > 0 {
		return
	}
	c.out.templates[phase] = t
	if err := shape(t); err != nil {
		c.errs = append(c.errs, err)
		return
	}
	if !t.plain {
		return
	}
	if _, err := podTemplate(t.value()); err != nil {
		c.errs = append(c.errs, field.Invalid(t.path, field.OmitValueType{}, err.Error()))
	}
}

// shape checks what can be known of a pod template with templates in it.
func shape(t *tree) *field.Error {
	if t.template != nil && !t.plain {
		return nil
	}
	if t.object == nil {
		return field.TypeInvalid(t.path, t.value(), "has to be an object with metadata and spec, or a template that sets yaml")
	}
	for k, child := range t.object {
		if k != "metadata" && k != "spec" {
			return field.Forbidden(child.path, "a pod template has metadata and spec")
		}
	}
	spec := t.object["spec"]
	if spec == nil {
		return field.Required(t.path.Child("spec"), "which pod it is")
	}
	if spec.object != nil && spec.object["containers"] == nil {
		return field.Required(spec.path.Child("containers"), "a pod has one at least")
	}
	return nil
}
