// Package admission refuses PavProvisioners that are wrong when they are applied, with the path of
// each wrong field: the validating webhook, and the certificate by which API servers know it.
//
// The webhook fails closed: as long as no replica serves, or API servers do not trust its
// certificate, no PavProvisioner is made or changed.
//
// The certificate is self-signed. It and the one before it lie in a Secret with their keys, and both
// are in the caBundle of the ValidatingWebhookConfiguration. A new one is served only after API
// servers have had time to learn of it, so that a renewal refuses no request. Each replica keeps
// both objects as they should be, by compare-and-swap; none leads. What is missing or was
// overwritten is written again when the watch tells of it.
//
// No library is used for that. The one that is in common use, rotator of open-policy-agent's
// cert-controller (v0.16.0), builds with Moor's versions of Kubernetes, but reads the certificate
// from a mounted Secret, which a process outside of a pod does not have and a kubelet brings up to
// date only after a minute; it puts a new authority in the place of the old one, so that all
// requests are refused in that minute; it has no addresses in its certificates, which a URL may
// have; it does not make a Secret that was deleted anew; it watches all Secrets of the namespace;
// and it takes the time from no clock that a test can set.
package admission
