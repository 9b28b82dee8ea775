# shellcheck shell=bash
# shellcheck disable=SC2153 # the renderer sets SIGNING_KEY
# An image is pulled only if the pipeline's key has signed its digest. The signature is next to it in the registry, in
# cosign's format: a manifest with the tag sha256-DIGEST.sig, whose layers are signed texts that contain the digest.

# from_registry IMAGE WHAT: without the password in the arguments, which every process can read
from_registry() {
  local repository=${1#*/}
  curl -fsSL -m 30 -K <(echo "user = \"AWS:$REGISTRY_PASSWORD\"") \
    -H 'Accept: application/vnd.oci.image.manifest.v1+json' "https://${1%%/*}/v2/${repository%@*}/$2"
}

signed_digest() {
  python3 -c 'import json, sys; print(json.load(sys.stdin)["critical"]["image"]["docker-manifest-digest"])'
}

# Prints a digest and a signature per line.
signed_texts() {
  python3 -c 'import json, sys
for layer in json.load(sys.stdin)["layers"]: print(layer["digest"], layer["annotations"]["dev.cosignproject.cosign/signature"])'
}

# signed IMAGE
signed() {
  local digest=${1#*@} text signature
  REGISTRY_PASSWORD=$(aws ecr get-login-password) || return 1
  printf '%s\n' '-----BEGIN PUBLIC KEY-----' "$SIGNING_KEY" '-----END PUBLIC KEY-----' >"$RUN/signing-key"
  from_registry "$1" "manifests/${digest/:/-}.sig" >"$RUN/signatures" || return 1
  while read -r text signature; do
    from_registry "$1" "blobs/$text" >"$RUN/signed-text" || return 1
    base64 -d <<<"$signature" >"$RUN/signature" || continue
    openssl dgst -sha256 -verify "$RUN/signing-key" -signature "$RUN/signature" "$RUN/signed-text" >/dev/null || continue
    [[ $(signed_digest <"$RUN/signed-text") != "$digest" ]] || return 0
  done < <(signed_texts <"$RUN/signatures")
  return 1
}
