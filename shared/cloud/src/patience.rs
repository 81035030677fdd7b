//! How long a client waits for a service that accepts a call and never answers.
//!
//! Without limits a hanging service hangs its callers. Every backend's clients have these. A call to DynamoDB ends
//! with all its retries within 20 s, less than the leases of workers (30 s and more). A long poll of SQS may take
//! 40 s and a transfer of S3 90 s: a worker that makes one under a lease renews the lease meanwhile. A lease that
//! is shorter than that, as a publisher's, has a limit of its own around its calls.

use std::time::Duration;

#[cfg(feature = "s3")]
use aws_sdk_s3::config::StalledStreamProtectionConfig;
use aws_smithy_types::timeout::TimeoutConfig;

/// SQS answers an empty long poll after at most this long, and that is no hang.
#[cfg(feature = "sqs")]
const LONG_POLL: Duration = Duration::from_secs(20);

/// The limits of all clients of a [`crate::Cloud`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// To connect.
    pub connect: Duration,
    /// For one sending of a call to DynamoDB, Streams or SQS (after its long poll). Then the SDK sends
    /// it again.
    pub attempt: Duration,
    /// For a call with all its retries.
    pub operation: Duration,
    /// For one sending of an object to S3, or the first byte of one from there.
    pub transfer: Duration,
    /// For a transfer that has begun and on which nothing moves.
    pub stall: Duration,
    /// For a Redis command, and for connecting to Redis.
    pub redis: Duration,
}

impl Patience {
    /// What every backend begins with.
    pub const DEFAULT: Self = Self {
        connect: Duration::from_secs(3),
        attempt: Duration::from_secs(6),
        operation: Duration::from_secs(20),
        transfer: Duration::from_secs(30),
        stall: Duration::from_secs(20),
        redis: Duration::from_secs(5),
    };

    /// Short, for tests of what hangs.
    pub const SHORT: Self = Self {
        connect: Duration::from_millis(100),
        attempt: Duration::from_millis(100),
        operation: Duration::from_millis(400),
        transfer: Duration::from_millis(200),
        stall: Duration::from_millis(200),
        redis: Duration::from_millis(100),
    };

    pub(crate) fn dynamodb(self) -> TimeoutConfig {
        self.limits(self.attempt, self.operation)
    }

    #[cfg(feature = "sqs")]
    pub(crate) fn sqs(self) -> TimeoutConfig {
        // A short patience is for tests, which do not poll for long.
        let poll = if self == Self::SHORT {
            Duration::ZERO
        } else {
            LONG_POLL
        };
        self.limits(self.attempt + poll, self.operation + poll)
    }

    #[cfg(feature = "s3")]
    pub(crate) fn s3(self) -> TimeoutConfig {
        self.limits(self.transfer, self.transfer * 3)
    }

    #[cfg(feature = "s3")]
    pub(crate) fn stall(self) -> StalledStreamProtectionConfig {
        StalledStreamProtectionConfig::enabled()
            .grace_period(self.stall)
            .build()
    }

    fn limits(self, attempt: Duration, operation: Duration) -> TimeoutConfig {
        TimeoutConfig::builder()
            .connect_timeout(self.connect)
            .operation_attempt_timeout(attempt)
            .operation_timeout(operation)
            .build()
    }
}
