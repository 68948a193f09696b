# METADATA
# title: Customer data stays in the region
# description: While a label of customer data is in force, requests go to upstreams of the region only.
# custom:
#   code: region.upstream
#   severity: high
#   kinds: [request]
#   capabilities: [read_labels]
package cmf.rules.region.upstream

deny contains {
	"code": "region.upstream",
	"reason": "Customer data may not leave the region.",
} if {
	not _free
	not _inside
}

_free if {
	labels := input.extensions.security.labels
	every label in _settings.labels {
		not label in labels
	}
}

_inside if input.extensions.custom.upstream in _settings.upstreams

_settings := data.cmf.defaults.region.upstream
