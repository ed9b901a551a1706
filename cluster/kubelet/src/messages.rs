//! Messages of the kubelet's protocols.
//!
//! Numbers and types of the fields are those of the files `api.proto` in Kubernetes' `k8s.io/kubelet` (Apache-2.0):
//! `pkg/apis/pluginregistration/v1`, and `pkg/apis/dra/v1` and `v1beta1`, whose messages are the same.

use std::collections::HashMap;

use prost::Message;

/// The service by which a plug-in makes itself known.
pub const REGISTRATION: &str = "pluginregistration.Registration";
/// The services by which claims are prepared, the newest first: what the kubelet calls each, and its name in requests.
pub const PLUGIN: [(&str, &str); 2] = [
    ("v1.DRAPlugin", "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"),
    ("v1beta1.DRAPlugin", "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"),
];

/// Asks for a [`PluginInfo`].
#[derive(Clone, PartialEq, Message)]
pub struct InfoRequest {}

/// Description of a plug-in.
#[derive(Clone, PartialEq, Message)]
pub struct PluginInfo {
    /// `DRAPlugin`.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// The driver's name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The socket of the plug-in itself.
    #[prost(string, tag = "3")]
    pub endpoint: String,
    /// The services that it has, see [`PLUGIN`].
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

/// Result of the registration.
#[derive(Clone, PartialEq, Message)]
pub struct RegistrationStatus {
    /// The kubelet uses the plug-in.
    #[prost(bool, tag = "1")]
    pub plugin_registered: bool,
    /// Reason that the kubelet rejects the plug-in.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// Nothing.
#[derive(Clone, PartialEq, Message)]
pub struct RegistrationStatusResponse {}

/// A `ResourceClaim`.
#[derive(Clone, PartialEq, Message)]
pub struct Claim {
    /// Its namespace.
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// Its uid.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// Claims of pods that are about to start.
#[derive(Clone, PartialEq, Message)]
pub struct NodePrepareResourcesRequest {
    /// The claims.
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

/// Prepared claims.
#[derive(Clone, PartialEq, Message)]
pub struct NodePrepareResourcesResponse {
    /// By the claim's uid.
    #[prost(map = "string, message", tag = "1")]
    pub claims: HashMap<String, NodePrepareResourceResponse>,
}

/// Prepared devices of a claim.
#[derive(Clone, PartialEq, Message)]
pub struct NodePrepareResourceResponse {
    /// Its devices.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
    /// Reason that there are none; empty if there are.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// A device for the containers that use one of these requests of the claim.
#[derive(Clone, PartialEq, Message)]
pub struct Device {
    /// Names of requests.
    #[prost(string, repeated, tag = "1")]
    pub request_names: Vec<String>,
    /// The pool that it is in.
    #[prost(string, tag = "2")]
    pub pool_name: String,
    /// Its name there.
    #[prost(string, tag = "3")]
    pub device_name: String,
    /// Names of the devices for the container runtime.
    #[prost(string, repeated, tag = "4")]
    pub cdi_device_ids: Vec<String>,
}

/// Claims whose pods have ended.
#[derive(Clone, PartialEq, Message)]
pub struct NodeUnprepareResourcesRequest {
    /// The claims.
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

/// Claims that were taken down.
#[derive(Clone, PartialEq, Message)]
pub struct NodeUnprepareResourcesResponse {
    /// By the claim's uid.
    #[prost(map = "string, message", tag = "1")]
    pub claims: HashMap<String, NodeUnprepareResourceResponse>,
}

/// Result of taking down a claim's devices.
#[derive(Clone, PartialEq, Message)]
pub struct NodeUnprepareResourceResponse {
    /// Reason that they are still there; empty if they are not.
    #[prost(string, tag = "1")]
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes by the rules of the encoding, from the published numbers: field `n` of a text is `n << 3 | 2`.
    #[test]
    fn fields_have_the_published_numbers() {
        let claim = Claim { namespace: "n".into(), uid: "u".into(), name: "m".into() };
        let bytes = b"\x0a\x01n\x12\x01u\x1a\x01m";
        assert_eq!(claim.encode_to_vec(), bytes);
        let request = NodePrepareResourcesRequest { claims: vec![claim] };
        assert_eq!(request.encode_to_vec(), [b"\x0a\x09".as_slice(), bytes].concat());
        let device = Device {
            request_names: vec!["r".into()],
            pool_name: "p".into(),
            device_name: "d".into(),
            cdi_device_ids: vec!["c".into()],
        };
        let prepared = NodePrepareResourceResponse { devices: vec![device], error: "e".into() };
        let device = b"\x0a\x01r\x12\x01p\x1a\x01d\x22\x01c".as_slice();
        let prepared_bytes = [b"\x0a\x0c".as_slice(), device, b"\x12\x01e"].concat();
        assert_eq!(prepared.encode_to_vec(), prepared_bytes);
        let answer = NodePrepareResourcesResponse { claims: HashMap::from([("u".into(), prepared)]) };
        // An entry of a map is a message with key 1 and value 2.
        let entry = [b"\x0a\x01u\x12\x11".as_slice(), &prepared_bytes].concat();
        assert_eq!(answer.encode_to_vec(), [b"\x0a\x16".as_slice(), &entry].concat());
        let info = PluginInfo {
            r#type: "t".into(),
            name: "n".into(),
            endpoint: "e".into(),
            supported_versions: vec!["v".into()],
        };
        assert_eq!(info.encode_to_vec(), b"\x0a\x01t\x12\x01n\x1a\x01e\x22\x01v");
        let status = RegistrationStatus { plugin_registered: true, error: "e".into() };
        assert_eq!(status.encode_to_vec(), b"\x08\x01\x12\x01e");
    }
}
