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
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};
    use std::sync::Arc;
    use std::time::Duration;
    use testcontainers::core::{IntoContainerPort, WaitFor};
    use testcontainers::runners::AsyncRunner;
    use testcontainers::{ContainerAsync, GenericImage, ImageExt, TestcontainersError};
    use tokio::sync::OnceCell;

    /// The last LocalStack that needs no licence token.
    const LOCALSTACK: &str = "localstack/localstack:4.14.0";
    /// Redis 7: GEOSEARCH came with 6.2.
    const REDIS: &str = "redis:7";
    /// Every container carries it, so that `docker rm -f $(docker ps -aq --filter label=archetypes)`
    /// removes whatever was left.
    const LABEL: &str = "archetypes";

    struct Containers {
        aws: String,
        redis: String,
    }

    pub(crate) async fn connect(options: Options) -> Result<Cloud, ConnectError> {
        static SET: OnceCell<Containers> = OnceCell::const_new();
        let set = SET
            .get_or_try_init(start)
            .await
            .map_err(|error| ConnectError::NoEngine(error.to_string()))?;
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

    async fn start() -> Result<Containers, TestcontainersError> {
        let (name, tag) = image("ARCHETYPES_LOCALSTACK_IMAGE", LOCALSTACK);
        let localstack = GenericImage::new(name, tag)
            .with_exposed_port(4566.tcp())
            .with_wait_for(WaitFor::message_on_stdout("Ready."))
            .with_env_var("SERVICES", "dynamodb,dynamodbstreams,sqs,s3")
            // Presigned URLs are a promise only if a wrong signature is refused.
            .with_env_var("S3_SKIP_SIGNATURE_VALIDATION", "0")
            .with_label(LABEL, "localstack")
            .with_startup_timeout(Duration::from_secs(180));
        let (name, tag) = image("ARCHETYPES_REDIS_IMAGE", REDIS);
        let redis = GenericImage::new(name, tag)
            .with_exposed_port(6379.tcp())
            .with_wait_for(WaitFor::message_on_stdout("Ready to accept connections"))
            .with_label(LABEL, "redis");
        let (localstack, redis) = tokio::try_join!(localstack.start(), redis.start())?;
        let aws = format!(
            "http://{}:{}",
            localstack.get_host().await?,
            localstack.get_host_port_ipv4(4566.tcp()).await?
        );
        let url = format!(
            "redis://{}:{}",
            redis.get_host().await?,
            redis.get_host_port_ipv4(6379.tcp()).await?
        );
        outlive_nothing([localstack, redis]);
        Ok(Containers { aws, redis: url })
    }

    /// The containers serve every test of this process, so no test may drop them; and a value
    /// that lives until the process ends is never dropped at all. So a small shell waits for the
    /// end of this process, however it ends, and removes them then.
    fn outlive_nothing(containers: [ContainerAsync<GenericImage>; 2]) {
        let ids: Vec<_> = containers.iter().map(|c| c.id().to_owned()).collect();
        let script = format!("cat; docker rm -f {} >/dev/null 2>&1", ids.join(" "));
        let reaper = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C goes to a whole process group, and the reaper has to outlive this process.
            .process_group(0)
            .spawn();
        match reaper {
            // Leaked on purpose: its standard input closes when this process is gone.
            Ok(child) => std::mem::forget(child),
            Err(error) => eprintln!(
                "containers {} will be left running ({error}); remove them with `docker rm -f`",
                ids.join(" ")
            ),
        }
        std::mem::forget(containers);
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
