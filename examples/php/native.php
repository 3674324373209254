<?php
// Dueline's own HTTP API from PHP 7.4 or newer, without packages or extensions.
//
//     DUELINE_URL=http://127.0.0.1:9277 php examples/php/native.php
//
// An order closes after a second unless it is paid. One of two orders is paid in time; closing the other fails once.

declare(strict_types=1);

$url = getenv('DUELINE_URL') ?: 'http://127.0.0.1:9277';
$token = getenv('DUELINE_TOKEN') ?: null;

/** One call of the API. Throws a RuntimeException with the server's code and message if the call is refused. */
function call(string $method, string $path, ?array $value = null): array
{
    global $url, $token;
    $options = [
        'method' => $method,
        'header' => 'Content-Type: application/json' . ($token ? "\r\nAuthorization: Bearer $token" : ''),
        'content' => $value === null ? '' : json_encode($value, JSON_THROW_ON_ERROR),
        'ignore_errors' => true, // give us the body of a refusal too
        'timeout' => 60, // longer than the pull below may wait
    ];
    $text = file_get_contents("$url/v1$path", false, stream_context_create(['http' => $options]));
    if ($text === false) {
        throw new RuntimeException("no answer from $url");
    }
    $answer = json_decode($text, true, 512, JSON_THROW_ON_ERROR);
    // A call on several jobs returns one result for each; a refused one contains an error.
    foreach ([$answer, ...($answer['results'] ?? [])] as $result) {
        if (isset($result['error'])) {
            throw new RuntimeException("{$result['error']['code']}: {$result['error']['message']}");
        }
    }
    return $answer;
}

/** The work. It may run twice for one job (delivery is at least once), so it must be idempotent. */
function close(array $order, int $attempt): void
{
    if ($attempt === 1) {
        throw new RuntimeException("the shop's database is restarting");
    }
    echo "closed {$order['number']}, attempt $attempt\n";
}

$topic = 'orders-' . bin2hex(random_bytes(6));
foreach (['A-1', 'A-2'] as $number) {
    // With your own id, a send is safe to repeat when its answer was lost.
    $job = ['id' => "close-$number", 'body' => ['number' => $number], 'delay' => '1s', 'max_attempts' => 5];
    $sent = call('POST', "/topics/$topic/jobs", $job);
    echo "sent {$sent['id']}, {$sent['state']}\n";
}
call('DELETE', "/topics/$topic/jobs/close-A-2"); // it was paid
echo "cancelled close-A-2\n";

for ($open = 1; $open > 0;) {
    // Waits up to 20 s for a due job. During the lease of 30 s no other consumer gets the job.
    $pulled = call('POST', "/topics/$topic/pull", ['max' => 10, 'lease_ms' => 30000, 'wait_ms' => 20000]);
    foreach ($pulled['jobs'] as $job) {
        $held = ['id' => $job['id'], 'lease' => $job['lease']];
        try {
            close($job['body'], $job['attempt']);
        } catch (RuntimeException $error) {
            $held += ['delay_ms' => 200, 'error' => $error->getMessage()];
            call('POST', "/topics/$topic/release", ['jobs' => [$held]]);
            echo "released {$job['id']}: {$error->getMessage()}\n";
            continue;
        }
        call('POST', "/topics/$topic/ack", ['jobs' => [$held]]);
        echo "acked {$job['id']}\n";
        $open--;
    }
}
echo "topic $topic\n";
