//! gRPC on Unix sockets: the kubelet's two protocols.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::http;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use radrm_http::clients::{Bounds, Room, User};
use tokio::net::UnixListener;
use tokio::sync::mpsc::UnboundedSender;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::devices::DRIVER;
use crate::messages::{
    InfoRequest, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest, PLUGIN, PluginInfo,
    REGISTRATION, RegistrationStatus, RegistrationStatusResponse,
};
use crate::plugin::Plugin;

/// Connections of a socket at once; the kubelet has one.
const CONNECTIONS: Bounds = Bounds { all: 32, of_user: 32, reserved: 0 };
/// Calls of a connection at once.
const MAX_CALLS: u32 = 64;
/// Time between two checks that the other side is there, and for its answer.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Handlers of the requests on both sockets.
#[derive(Clone, Debug)]
pub struct Services {
    /// Prepares claims.
    pub plugin: Arc<Plugin>,
    /// The socket of the plug-in, as the kubelet finds it.
    pub endpoint: String,
    /// Gets what the kubelet says of the registration.
    pub news: UnboundedSender<News>,
}

/// Event for the program while it serves.
#[derive(Debug)]
pub enum News {
    /// The kubelet has registered the plug-in, or rejects it.
    Registration(RegistrationStatus),
    /// It is asked to end.
    Stop,
}

/// Services of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Socket {
    /// The one that makes the plug-in known.
    Registration,
    /// The one that prepares claims.
    Plugin,
}

/// Answers on a socket as long as the process lives.
pub async fn serve(listener: UnixListener, socket: Socket, services: Services) {
    let room = Room::new(CONNECTIONS);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Such as for want of descriptors.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        // Only root reaches the socket.
        let Ok(connection) = room.take(User { uid: Some(0), is_privileged: true }, 1) else { continue };
        let services = services.clone();
        tokio::spawn(async move {
            let _connection = connection;
            let answer = service_fn(move |request| {
                let services = services.clone();
                async move { Ok::<_, Infallible>(route(socket, services, request).await) }
            });
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new()).max_concurrent_streams(MAX_CALLS);
            // What does not answer is gone.
            builder.keep_alive_interval(Some(KEEP_ALIVE)).keep_alive_timeout(KEEP_ALIVE);
            // A connection that breaks is the kubelet's to make anew.
            let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn route(
    socket: Socket,
    services: Services,
    request: http::Request<Incoming>,
) -> http::Response<tonic::body::Body> {
    let path = request.uri().path().to_owned();
    let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
    let is_plugin = PLUGIN.iter().any(|(_, name)| *name == service);
    match (socket, method) {
        (Socket::Registration, "GetInfo") if service == REGISTRATION => {
            let info = PluginInfo {
                r#type: "DRAPlugin".to_owned(),
                name: DRIVER.to_owned(),
                endpoint: services.endpoint,
                supported_versions: PLUGIN.map(|(version, _)| version.to_owned()).to_vec(),
            };
            unary(request, move |_: InfoRequest| Ok(info.clone())).await
        }
        (Socket::Registration, "NotifyRegistrationStatus") if service == REGISTRATION => {
            let noted = move |status: RegistrationStatus| {
                // Without a receiver the plug-in is about to end.
                let _ = services.news.send(News::Registration(status));
                Ok(RegistrationStatusResponse {})
            };
            unary(request, noted).await
        }
        (Socket::Plugin, "NodePrepareResources") if is_plugin => {
            let prepare =
                move |asked: NodePrepareResourcesRequest| Ok(services.plugin.prepare(&asked.claims));
            unary(request, prepare).await
        }
        (Socket::Plugin, "NodeUnprepareResources") if is_plugin => {
            let unprepare =
                move |asked: NodeUnprepareResourcesRequest| Ok(services.plugin.unprepare(&asked.claims));
            unary(request, unprepare).await
        }
        _ => Status::unimplemented(format!("{path} is not served here")).into_http(),
    }
}

/// Answers one message with one, on a thread that may wait.
async fn unary<Q, A, F>(request: http::Request<Incoming>, answer: F) -> http::Response<tonic::body::Body>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
    F: Fn(Q) -> Result<A, Status> + Send + Sync + 'static,
{
    Grpc::new(ProstCodec::<A, Q>::default()).unary(Call(Arc::new(answer)), request).await
}

struct Call<F>(Arc<F>);

impl<Q, A, F> UnaryService<Q> for Call<F>
where
    Q: Send + 'static,
    A: Send + 'static,
    F: Fn(Q) -> Result<A, Status> + Send + Sync + 'static,
{
    type Response = A;
    type Future = Pin<Box<dyn Future<Output = Result<Response<A>, Status>> + Send>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let answer = Arc::clone(&self.0);
        Box::pin(async move {
            let done = tokio::task::spawn_blocking(move || answer(request.into_inner())).await;
            // A panic was reported on standard error; the kubelet asks again.
            done.unwrap_or_else(|_| Err(Status::internal("the plug-in failed; its log has the reason")))
                .map(Response::new)
        })
    }
}
