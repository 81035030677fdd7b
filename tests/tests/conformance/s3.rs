//! S3. Presigned addresses are used as a browser would use them, with a plain HTTP client.
//! That client has no TLS: enough for loopback; against AWS itself give reqwest its TLS feature.

use aws_sdk_s3::Client;
use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::presigning::PresigningConfig;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use cloud::Cloud;
use std::time::{Duration, SystemTime};

/// SHA-256 of "hello", in base64.
const SHA_OF_HELLO: &str = "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=";

/// A bucket of its own for each test.
struct Bucket {
    _cloud: Cloud,
    s3: Client,
    name: String,
}

async fn bucket() -> Bucket {
    let cloud = cloud::connect_for_tests().await.unwrap();
    let name = cloud.names().bucket(&cloud.ids().next("bucket"));
    cloud
        .s3()
        .create_bucket()
        .bucket(&name)
        .send()
        .await
        .unwrap();
    Bucket {
        s3: cloud.s3().clone(),
        name,
        _cloud: cloud,
    }
}

impl Bucket {
    async fn put(&self, key: &str, body: &'static str) {
        let put = self.s3.put_object().bucket(&self.name).key(key);
        put.body(ByteStream::from_static(body.as_bytes()))
            .send()
            .await
            .unwrap();
    }

    async fn get(&self, key: &str) -> Option<String> {
        let object = self
            .s3
            .get_object()
            .bucket(&self.name)
            .key(key)
            .send()
            .await;
        match object {
            Ok(object) => {
                let bytes = object.body.collect().await.unwrap().to_vec();
                Some(String::from_utf8(bytes).unwrap())
            }
            Err(error) if error.code() == Some("NoSuchKey") => None,
            Err(error) => panic!("{error:?}"),
        }
    }

    async fn presigned_put(&self, key: &str, valid: PresigningConfig) -> String {
        let put = self.s3.put_object().bucket(&self.name).key(key);
        put.presigned(valid).await.unwrap().uri().to_owned()
    }

    async fn presigned_get(&self, key: &str, valid: PresigningConfig) -> String {
        let get = self.s3.get_object().bucket(&self.name).key(key);
        get.presigned(valid).await.unwrap().uri().to_owned()
    }
}

fn for_a_minute() -> PresigningConfig {
    PresigningConfig::expires_in(Duration::from_secs(60)).unwrap()
}

fn until_an_hour_ago() -> PresigningConfig {
    let start = SystemTime::now() - Duration::from_secs(3_660);
    let config = PresigningConfig::builder().start_time(start);
    config.expires_in(Duration::from_secs(60)).build().unwrap()
}

async fn upload(url: &str, body: &'static str) -> u16 {
    reqwest::Client::new()
        .put(url)
        .body(body)
        .send()
        .await
        .unwrap()
        .status()
        .as_u16()
}

async fn download(url: &str) -> (u16, String) {
    let answer = reqwest::get(url).await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test]
async fn a_presigned_put_uploads_and_a_presigned_get_downloads() {
    let bucket = bucket().await;
    let url = bucket.presigned_put("folder/a file", for_a_minute()).await;
    assert_eq!(upload(&url, "hello").await, 200);
    assert_eq!(bucket.get("folder/a file").await.as_deref(), Some("hello"));
    let url = bucket.presigned_get("folder/a file", for_a_minute()).await;
    assert_eq!(download(&url).await, (200, "hello".to_owned()));
}

#[tokio::test]
async fn an_unsigned_request_is_refused() {
    let bucket = bucket().await;
    bucket.put("secret", "hello").await;
    let url = bucket.presigned_get("secret", for_a_minute()).await;
    let unsigned = url.split('?').next().unwrap();
    assert_eq!(download(unsigned).await.0, 403);
    assert_eq!(upload(unsigned, "changed").await, 403);
    assert_eq!(bucket.get("secret").await.as_deref(), Some("hello"));
}

#[tokio::test]
async fn a_presigned_address_is_for_one_key_and_one_method() {
    let bucket = bucket().await;
    bucket.put("mine", "mine").await;
    bucket.put("other", "other").await;
    let url = bucket.presigned_get("mine", for_a_minute()).await;
    assert_eq!(download(&url.replace("/mine?", "/other?")).await.0, 403);
    assert_eq!(upload(&url, "changed").await, 403);
    assert_eq!(bucket.get("mine").await.as_deref(), Some("mine"));
}

#[tokio::test]
async fn an_expired_presigned_address_is_refused() {
    let bucket = bucket().await;
    bucket.put("old", "old").await;
    let url = bucket.presigned_get("old", until_an_hour_ago()).await;
    assert_eq!(download(&url).await.0, 403);
    let url = bucket.presigned_put("old", until_an_hour_ago()).await;
    assert_eq!(upload(&url, "changed").await, 403);
    assert_eq!(bucket.get("old").await.as_deref(), Some("old"));
}

#[tokio::test]
async fn a_wrong_checksum_is_refused() {
    let bucket = bucket().await;
    let put = |body: &'static str| {
        let put = bucket
            .s3
            .put_object()
            .bucket(&bucket.name)
            .key("sum")
            .checksum_sha256(SHA_OF_HELLO);
        put.body(ByteStream::from_static(body.as_bytes())).send()
    };
    let refused = put("hallo").await.unwrap_err();
    assert_eq!(
        refused.raw_response().unwrap().status().as_u16(),
        400,
        "{refused:?}"
    );
    put("hello").await.unwrap();
    assert_eq!(bucket.get("sum").await.as_deref(), Some("hello"));
}

#[tokio::test]
async fn a_presigned_put_with_a_checksum_refuses_another_body() {
    let bucket = bucket().await;
    let put = bucket
        .s3
        .put_object()
        .bucket(&bucket.name)
        .key("sum")
        .checksum_sha256(SHA_OF_HELLO);
    let presigned = put.presigned(for_a_minute()).await.unwrap();
    let upload = async |body: &'static str| {
        let mut request = reqwest::Client::new().put(presigned.uri()).body(body);
        for (name, value) in presigned.headers() {
            request = request.header(name, value);
        }
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(upload("hallo").await, 400);
    assert_eq!(upload("hello").await, 200);
    assert_eq!(bucket.get("sum").await.as_deref(), Some("hello"));
}

#[tokio::test]
async fn if_none_match_lets_only_the_first_writer_create() {
    let bucket = bucket().await;
    let put = |body: &'static str| {
        let put = bucket
            .s3
            .put_object()
            .bucket(&bucket.name)
            .key("once")
            .if_none_match("*");
        put.body(ByteStream::from_static(body.as_bytes())).send()
    };
    put("first").await.unwrap();
    let refused = put("second").await.unwrap_err();
    assert_eq!(refused.code(), Some("PreconditionFailed"));
    assert_eq!(bucket.get("once").await.as_deref(), Some("first"));
}

#[tokio::test]
async fn a_put_replaces_and_is_read_back_at_once() {
    let bucket = bucket().await;
    for body in ["one", "two", "three"] {
        bucket.put("key", body).await;
        assert_eq!(bucket.get("key").await.as_deref(), Some(body));
    }
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let bucket = bucket().await;
    assert_eq!(bucket.get("missing").await, None);
    let head = bucket
        .s3
        .head_object()
        .bucket(&bucket.name)
        .key("missing")
        .send()
        .await;
    assert!(head.unwrap_err().into_service_error().is_not_found());
}

#[tokio::test]
async fn a_deleted_object_is_gone_and_deleting_again_is_no_error() {
    let bucket = bucket().await;
    bucket.put("key", "body").await;
    for _ in 0..2 {
        bucket
            .s3
            .delete_object()
            .bucket(&bucket.name)
            .key("key")
            .send()
            .await
            .unwrap();
        assert_eq!(bucket.get("key").await, None);
    }
}

#[tokio::test]
async fn head_tells_size_and_metadata() {
    let bucket = bucket().await;
    let put = bucket
        .s3
        .put_object()
        .bucket(&bucket.name)
        .key("key")
        .metadata("owner", "alice");
    put.body(ByteStream::from_static(b"12345"))
        .send()
        .await
        .unwrap();
    let head = bucket
        .s3
        .head_object()
        .bucket(&bucket.name)
        .key("key")
        .send()
        .await
        .unwrap();
    assert_eq!(head.content_length(), Some(5));
    assert_eq!(head.metadata().unwrap()["owner"], "alice");
}

#[tokio::test]
async fn the_etag_changes_with_the_content() {
    let bucket = bucket().await;
    let tag = async |body: &'static str| {
        bucket.put("key", body).await;
        let head = bucket
            .s3
            .head_object()
            .bucket(&bucket.name)
            .key("key")
            .send()
            .await;
        head.unwrap().e_tag.unwrap()
    };
    let one = tag("one").await;
    assert_ne!(one, tag("two").await);
    assert_eq!(one, tag("one").await);
}

#[tokio::test]
async fn a_range_brings_only_its_bytes() {
    let bucket = bucket().await;
    bucket.put("key", "0123456789").await;
    let get = bucket
        .s3
        .get_object()
        .bucket(&bucket.name)
        .key("key")
        .range("bytes=2-4");
    let bytes = get
        .send()
        .await
        .unwrap()
        .body
        .collect()
        .await
        .unwrap()
        .to_vec();
    assert_eq!(bytes, b"234");
}

#[tokio::test]
async fn a_listing_goes_by_prefix_in_order_and_in_pages() {
    let bucket = bucket().await;
    for key in ["a/2", "b/1", "a/1", "a/3"] {
        bucket.put(key, "x").await;
    }
    let mut keys = Vec::new();
    let mut token = None;
    loop {
        let list = bucket
            .s3
            .list_objects_v2()
            .bucket(&bucket.name)
            .prefix("a/")
            .max_keys(2);
        let page = list.set_continuation_token(token).send().await.unwrap();
        assert!(page.contents().len() <= 2);
        keys.extend(
            page.contents()
                .iter()
                .map(|object| object.key().unwrap().to_owned()),
        );
        token = page.next_continuation_token;
        if token.is_none() {
            break;
        }
    }
    assert_eq!(keys, ["a/1", "a/2", "a/3"]);
}

#[tokio::test]
async fn an_upload_in_parts_appears_whole_when_it_is_completed() {
    let bucket = bucket().await;
    let at = (&bucket.name, "large");
    let create = bucket.s3.create_multipart_upload().bucket(at.0).key(at.1);
    let upload = create.send().await.unwrap().upload_id.unwrap();
    // All parts but the last have 5 MB or more.
    let bodies = ["a".repeat(5 * 1024 * 1024), "b".to_owned()];
    let mut parts = CompletedMultipartUpload::builder();
    for (number, body) in (1..).zip(&bodies) {
        let part = bucket
            .s3
            .upload_part()
            .bucket(at.0)
            .key(at.1)
            .upload_id(&upload);
        let part = part
            .part_number(number)
            .body(ByteStream::from(body.clone().into_bytes()));
        let tag = part.send().await.unwrap().e_tag;
        parts = parts.parts(
            CompletedPart::builder()
                .part_number(number)
                .set_e_tag(tag)
                .build(),
        );
    }
    assert_eq!(bucket.get(at.1).await, None);
    let complete = bucket.s3.complete_multipart_upload().bucket(at.0).key(at.1);
    let complete = complete.upload_id(&upload).multipart_upload(parts.build());
    complete.send().await.unwrap();
    assert_eq!(bucket.get(at.1).await, Some(bodies.concat()));
}
