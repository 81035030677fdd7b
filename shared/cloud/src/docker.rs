//! The `docker` backend: LocalStack and Redis in containers, one set for each process.

use crate::Cloud;
use crate::backend::{ConnectError, Options};

#[cfg(not(feature = "docker"))]
pub(crate) async fn connect(_options: Options) -> Result<Cloud, ConnectError> {
    Err(ConnectError::WithoutDocker)
}

#[cfg(feature = "docker")]
pub(crate) use containers::connect;

#[cfg(feature = "docker")]
mod containers {
    use super::*;
    use crate::Parts;
    use crate::backend::Backend;
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};
    use testcontainers::bollard::Docker;
    use testcontainers::bollard::errors::Error::DockerResponseServerError;
    use testcontainers::bollard::exec::{CreateExecOptions, StartExecResults};
    use testcontainers::bollard::query_parameters::{
        ListContainersOptionsBuilder, RemoveContainerOptionsBuilder,
    };
    use testcontainers::core::IntoContainerPort;
    use testcontainers::core::client::docker_client_instance;
    use testcontainers::runners::AsyncRunner;
    use testcontainers::{ContainerAsync, ContainerRequest, GenericImage, Image, ImageExt};
    use tokio::io::AsyncBufReadExt;
    use tokio::sync::{OnceCell, oneshot};

    struct Service {
        name: &'static str,
        /// Says where another image is.
        variable: &'static str,
        image: &'static str,
        port: u16,
        environment: &'static [(&'static str, &'static str)],
        /// What it prints when it can be used.
        ready: &'static str,
    }

    const LOCALSTACK: Service = Service {
        name: "localstack",
        variable: "ARCHETYPES_LOCALSTACK_IMAGE",
        // The last one that needs no licence token.
        image: "localstack/localstack:4.14.0",
        port: 4566,
        environment: &[
            ("SERVICES", "dynamodb,dynamodbstreams,sqs,s3"),
            // Presigned URLs are a promise only if a wrong signature is refused.
            ("S3_SKIP_SIGNATURE_VALIDATION", "0"),
        ],
        ready: "Ready.",
    };

    const REDIS: Service = Service {
        name: "redis",
        variable: "ARCHETYPES_REDIS_IMAGE",
        // GEOSEARCH came with 6.2.
        image: "redis:7",
        port: 6379,
        environment: &[],
        ready: "Ready to accept connections",
    };

    /// Every container carries it, so that `docker rm -f $(docker ps -aq --filter label=archetypes)`
    /// removes all of them.
    const LABEL: &str = "archetypes";
    /// Which process a container serves.
    const OWNER: &str = "archetypes.process";
    /// How long the images may take to come from their registry.
    const PULL: Duration = Duration::from_secs(900);
    /// How long a service may take to start.
    const START_UP: Duration = Duration::from_secs(180);
    /// The main process of each container: runs the service, and stops it if nothing watches it. This process may be
    /// killed between the container's start and its watch.
    const RUN: &str = "\"$@\" & service=$!; \
        trap '(sleep 20; kill -KILL $service) & kill -TERM $service' TERM; \
        (sleep 30; [ -e /tmp/watched ] || kill -TERM 1) & \
        wait $service; wait $service";
    /// Runs in each container beside its service. Its standard input is a connection that this process holds. The
    /// kernel closes the connection when the process ends, by Ctrl-C and `kill -9` too. Then the watch stops the
    /// service, and the engine removes the container. Signals do not end the watch itself.
    const WATCH: &str = "trap '' TERM INT HUP; touch /tmp/watched; cat >/dev/null; kill -TERM 1";

    struct Containers {
        aws: String,
        redis: String,
    }

    pub(crate) async fn connect(options: Options) -> Result<Cloud, ConnectError> {
        static SET: OnceCell<Containers> = OnceCell::const_new();
        let set = SET
            .get_or_try_init(start)
            .await
            .map_err(ConnectError::NoEngine)?;
        Ok(Cloud::new(
            Backend::Docker,
            &options,
            Parts {
                path_style: true,
                shared: crate::local_config(),
                http: aws_smithy_http_client::Builder::new().build_http(),
                endpoints: [
                    Some(set.aws.clone()),
                    Some(set.aws.clone()),
                    Some(set.aws.clone()),
                ],
                #[cfg(feature = "s3")]
                bucket_owner: None,
                #[cfg(feature = "redis")]
                redis: crate::RedisAddress::At(set.redis.clone()),
                keep: Arc::new(()),
            },
        ))
    }

    /// Starts both containers on a thread that lives as long as the process: the runtime of a test ends with
    /// the test, and closes its connections.
    async fn start() -> Result<Containers, String> {
        let (tell, told) = oneshot::channel();
        let hold = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(tell.send(Err(error.to_string()))),
            };
            runtime.block_on(async {
                match start_both().await {
                    Ok((containers, _held)) => {
                        // A caller that has gone will not ask for these; the next one starts its own.
                        if tell.send(Ok(containers)).is_ok() {
                            std::future::pending::<()>().await;
                        }
                    }
                    Err(error) => drop(tell.send(Err(error.to_string()))),
                }
            });
        };
        std::thread::Builder::new()
            .name("containers".to_owned())
            .spawn(hold)
            .map_err(|error| error.to_string())?;
        told.await
            .unwrap_or_else(|_| Err("the containers' thread ended".to_owned()))
    }

    type Failed = Box<dyn std::error::Error + Send + Sync>;

    async fn start_both() -> Result<(Containers, [Watched; 2]), Failed> {
        let engine = docker_client_instance().await?;
        remove_what_never_started(&engine).await?;
        // Both images first: one that cannot be had leaves no container of the other.
        let [localstack, redis] = [&LOCALSTACK, &REDIS].map(|service| prepare(&engine, service));
        let pulled = async { tokio::try_join!(localstack, redis) };
        let pulled = tokio::time::timeout(PULL, pulled).await;
        let (localstack, redis) = pulled.map_err(|_| "the images did not come")??;
        let (localstack, redis) = tokio::try_join!(
            Watched::start(&engine, &LOCALSTACK, localstack),
            Watched::start(&engine, &REDIS, redis),
        )?;
        let containers = Containers {
            aws: format!("http://{}", localstack.address(&LOCALSTACK).await?),
            redis: format!("redis://{}", redis.address(&REDIS).await?),
        };
        Ok((containers, [localstack, redis]))
    }

    /// A container that ends with this process.
    struct Watched {
        container: ContainerAsync<GenericImage>,
        _watch: StartExecResults,
    }

    impl Watched {
        async fn start(
            engine: &Docker,
            service: &Service,
            request: ContainerRequest<GenericImage>,
        ) -> Result<Self, Failed> {
            let container = request.start().await?;
            let watched = Self {
                _watch: watch(engine, container.id()).await?,
                container,
            };
            // Watched first: a service may take long until it is ready.
            let ready = tokio::time::timeout(START_UP, watched.says(service.ready));
            let late = format!("{} was not ready in {START_UP:?}", service.name);
            ready.await.map_err(|_| late)??;
            Ok(watched)
        }

        async fn says(&self, words: &str) -> Result<(), Failed> {
            let mut lines = self.container.stdout(true).lines();
            while let Some(line) = lines.next_line().await? {
                if line.contains(words) {
                    return Ok(());
                }
            }
            Err(format!("a container ended before it said {words:?}").into())
        }

        async fn address(&self, service: &Service) -> Result<String, Failed> {
            let host = self.container.get_host().await?;
            let port = self
                .container
                .get_host_port_ipv4(service.port.tcp())
                .await?;
            Ok(format!("{host}:{port}"))
        }
    }

    /// The image is there, and what is to be run is known.
    async fn prepare(
        engine: &Docker,
        service: &Service,
    ) -> Result<ContainerRequest<GenericImage>, Failed> {
        let (name, tag) = image(service.variable, service.image);
        let image = GenericImage::new(name, tag).with_exposed_port(service.port.tcp());
        let command = own_command(engine, &image).await?;
        let wrapped = ["-c", RUN, "sh"].map(str::to_owned);
        let mut request = image
            .with_entrypoint("sh")
            .with_cmd(wrapped.into_iter().chain(command))
            .with_label(LABEL, service.name)
            .with_label(OWNER, std::process::id().to_string())
            .with_startup_timeout(START_UP)
            .with_host_config_modifier(|host| host.auto_remove = Some(true));
        for (name, value) in service.environment {
            request = request.with_env_var(*name, *value);
        }
        Ok(request)
    }

    /// What an image runs by itself. It is pulled if it is not there.
    async fn own_command(engine: &Docker, image: &GenericImage) -> Result<Vec<String>, Failed> {
        let name = format!("{}:{}", image.name(), image.tag());
        let inspected = match engine.inspect_image(&name).await {
            Err(DockerResponseServerError {
                status_code: 404, ..
            }) => {
                drop(image.clone().pull_image().await?);
                engine.inspect_image(&name).await
            }
            inspected => inspected,
        };
        let config = inspected?.config.unwrap_or_default();
        let entrypoint = config.entrypoint.unwrap_or_default();
        Ok([entrypoint, config.cmd.unwrap_or_default()].concat())
    }

    async fn watch(engine: &Docker, container: &str) -> Result<StartExecResults, Failed> {
        let command = CreateExecOptions {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            user: Some("0"),
            cmd: Some(vec!["sh", "-c", WATCH]),
            ..CreateExecOptions::default()
        };
        let watch = engine.create_exec(container, command).await?;
        Ok(engine.start_exec(&watch.id, None).await?)
    }

    /// Removes the containers of processes that were killed between making and starting one.
    async fn remove_what_never_started(engine: &Docker) -> Result<(), Failed> {
        const MINUTE: Duration = Duration::from_secs(60);
        let filters = HashMap::from([("label", vec![LABEL]), ("status", vec!["created"])]);
        let ours = ListContainersOptionsBuilder::new()
            .all(true)
            .filters(&filters);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        for container in engine.list_containers(Some(ours.build())).await? {
            let created = Duration::from_secs(container.created.unwrap_or(0).try_into()?);
            if let Some(id) = container.id.filter(|_| created + MINUTE < now) {
                // Another process may have removed it, and without it all is well.
                let with_volumes = RemoveContainerOptionsBuilder::new().v(true).build();
                let _ = engine.remove_container(&id, Some(with_volumes)).await;
            }
        }
        Ok(())
    }

    /// An image by name and tag, from the environment or the default.
    fn image(variable: &str, default: &str) -> (String, String) {
        let image = std::env::var(variable).unwrap_or_else(|_| default.to_owned());
        match image.rsplit_once(':') {
            // A colon before a slash belongs to a registry's port, not to a tag.
            Some((name, tag)) if !tag.contains('/') => (name.to_owned(), tag.to_owned()),
            _ => (image, "latest".to_owned()),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn an_image_without_a_tag_is_the_latest_one() {
            let of = |text| image("ARCHETYPES_NO_SUCH_VARIABLE", text);
            assert_eq!(of("redis:7"), ("redis".into(), "7".into()));
            assert_eq!(of("redis"), ("redis".into(), "latest".into()));
            assert_eq!(
                of("registry:5000/redis"),
                ("registry:5000/redis".into(), "latest".into())
            );
        }
    }
}
