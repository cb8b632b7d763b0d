// Package docs holds tests that keep documentation and manifests true: flags
// and fields are those of the programs and the CRDs, links lead somewhere,
// examples decode, texts quoted in the troubleshooting page are in the code,
// and workload manifests name flags, accounts and fields that exist.
//
// With -update the generated tables of the pages are written anew.
package docs
