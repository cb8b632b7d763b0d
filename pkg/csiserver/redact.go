package csiserver

import (
	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// loggable is a message as it may go into a log: without what the CSI
// specification marks as secret, and with only the keys of a publish context. The
// specification calls that no secret, but a vendor may put into it what opens
// the volume. The work is done when the line is written.
type loggable struct{ message any }

// String implements fmt.Stringer.
func (l loggable) String() string {
	m, ok := l.message.(proto.Message)
	if !ok || !m.ProtoReflect().IsValid() {
		return protosanitizer.StripSecrets(l.message).String()
	}
	field := m.ProtoReflect().Descriptor().Fields().ByName("publish_context")
	if field == nil || !field.IsMap() || field.MapValue().Kind() != protoreflect.StringKind {
		return protosanitizer.StripSecrets(m).String()
	}
	m = proto.Clone(m)
	if m.ProtoReflect().Has(field) {
		values := m.ProtoReflect().Mutable(field).Map()
		values.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
			values.Set(key, protoreflect.ValueOfString("***stripped***"))
			return true
		})
	}
	return protosanitizer.StripSecrets(m).String()
}
