# METADATA
# title: File paths under one root
# description: Tools and references name files below the root, by paths that need no cleaning.
# custom:
#   code: files.under-root
#   severity: high
#   kinds: [tool_call, resource_ref]
package cmf.rules.files.under_root

deny contains {
	"code": "files.under-root",
	"reason": "This file is outside of the workspace.",
	"detail": {"argument": argument},
} if {
	some argument in _settings.arguments[input.uri]
	not _argument_inside(argument)
}

deny contains {
	"code": "files.under-root",
	"reason": "This file is outside of the workspace.",
} if {
	input.kind == "resource_ref"
	startswith(input.uri, "file:")
	not _reference_inside
}

_argument_inside(name) if _inside(input.arguments[name])

_reference_inside if {
	startswith(input.uri, "file://")
	_inside(substring(input.uri, count("file://"), -1))
}

_inside(path) if {
	is_string(path)
	startswith(path, concat("", [_settings.root, "/"]))
	every segment in split(substring(path, 1, -1), "/") {
		_plain(segment)
	}
}

_plain(segment) if {
	regex.match(`^[A-Za-z0-9._@+ -]+$`, segment)
	not segment in {".", ".."}
}

_settings := data.cmf.defaults.files.under_root
